// Arguments of GPU kernels, filled in on the host.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

inline constexpr int kFlagArraysMax = 64;  // arrays that are checked in one launch

// An array whose squares are summed, or that is checked for numbers that are not finite.
struct GridValues {
    const float* data;
    int64_t numel;
};

// The arrays that one launch checks, with one flag per array.
struct GridFlags {
    GridValues arrays[kFlagArraysMax];
    float* flags;
};

// The storage form of a packed weight (kernels/matrix/matrix_shape.h, MatrixForm).
enum class GridForm : uint8_t { kInt8, kInt4, kNf4 };

// A packed weight that a kernel unpacks to plain numbers. It consists of panels of 16 rows, one
// after the other; each panel is a packed matrix (kernels/matrix/packed_matrix.h). Both arrays are
// in device memory.
struct GridPacked {
    const uint8_t* panels;
    void* dense;    // [out, in]; `halves` and `bf16` tell the type
    int64_t out;    // rows
    int64_t in;     // numbers of a row
    int64_t group;  // numbers of a row that share a scale, a multiple of 32
    int64_t panel_bytes;
    int64_t scales_offset;   // in bytes, from the start of a panel
    int64_t factors_offset;  // also in bytes from there; only for kInt4
    float numbers[16];       // kNf4's table
    GridForm form;
    bool halves;  // true: 16-bit numbers; false: fp32
    bool bf16;    // if halves: true for bf16, false for fp16
};

}  // namespace dslaunch::kernels
