// Arguments of a GPU's kernels that are made on the host.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

inline constexpr int kFlagArraysMax = 64;  // arrays that are looked at in one launch

// An array whose squares are summed, or that is looked at.
struct GridValues {
    const float* data;
    int64_t numel;
};

// Arrays that one launch looks at, each with a flag.
struct GridFlags {
    GridValues arrays[kFlagArraysMax];
    float* flags;
};

// A block whose values are compressed, all in the device's memory.
struct GridSigns {
    const float* values;
    float* error;
    uint8_t* bits;
    int64_t numel;
};

// A block that is expanded.
struct GridSigned {
    const uint8_t* bits;
    float* out;
    int64_t numel;
};

struct GridMoves {
    float* parameters;  // may be null in grid_take_moves
    float* meeting;
    float* momentum;
    const float* variance;
    float eps;
    float decay;
    int64_t numel;
};

}  // namespace dslaunch::kernels
