// Arguments of a GPU's kernels that are made on the host.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

inline constexpr int kFlagArraysMax = 64;  // arrays that are looked at in one launch

// An array whose squares are summed, or that is checked.
struct GridValues {
    const float* data;
    int64_t numel;
};

// Arrays that one launch checks, each with a flag.
struct GridFlags {
    GridValues arrays[kFlagArraysMax];
    float* flags;
};

// The form of a packed weight's bits (kernels/matrix/matrix_shape.h, MatrixForm).
enum class GridForm : uint8_t { kInt8, kInt4, kNf4 };

// A packed weight that is written out as numbers: panels of 16 rows one after the other, each a
// packed matrix of its own (kernels/matrix/packed_matrix.h). Both arrays are the device's.
struct GridPacked {
    const uint8_t* panels;
    void* dense;    // [out, in]; of the type that `halves` and `bf16` tell
    int64_t out;    // rows
    int64_t in;     // numbers of a row
    int64_t group;  // numbers of a row that share a scale, a multiple of 32
    int64_t panel_bytes;
    int64_t scales_offset;   // in a panel, in bytes, and so the next
    int64_t factors_offset;  // kInt4
    float numbers[16];       // kNf4's table
    GridForm form;
    bool halves;  // fp32 otherwise
    bool bf16;    // halves: of bf16, fp16 otherwise
};

}  // namespace dslaunch::kernels
