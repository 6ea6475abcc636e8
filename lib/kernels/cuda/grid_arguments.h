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

}  // namespace dslaunch::kernels
