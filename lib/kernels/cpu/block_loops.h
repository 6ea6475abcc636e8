// The loops that this folder and matrix/cpu share: rounding to whole codes, the largest magnitude
// and the sum of a block. Compiled like flat_loops.h; everything here has internal linkage.
//
// Three loops round to 8 bits, and each has its own quotient. States and transfers
// (packing_loops.h) use x / largest * 127. Activations (activation_loops.h) use x * (127 /
// largest), which needs one division per group. Weights (rounding_loops.h) use x / scale, where the
// scale is a bf16. The quotients differ in their last bits, so one loop for all would change codes
// in files.
#pragma once

#include <cstdint>

#include "base/half_bits.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy.
namespace dslaunch::kernels {
namespace {

// Returns the whole number nearest to X, ties to even. REQUIRES: |X| < 2^22.
inline int32_t nearest_whole(float x) {
    return __builtin_bit_cast(int32_t, x + kWholeShift) - __builtin_bit_cast(int32_t, kWholeShift);
}

constexpr uint32_t kSignMask = 0x7FFFFFFFU;
constexpr uint32_t kInfinityBits = 0x7F800000U;

// Returns the bits of the largest magnitude. Bits are compared as integers, so a NaN is above all
// numbers and the order of the comparisons does not matter.
inline uint32_t largest_bits(const float* values, int64_t numel) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < numel; ++i) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, values[i]) & kSignMask;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

// Returns the sum of square(i) for all i below NUMEL. Number i is added to lane i mod 16, and the
// lanes are added in order, so the order of additions is the same for every vector width.
template <typename Square>
inline double sum_by_lanes(int64_t numel, const Square& square) {
    constexpr int64_t kSumLanes = 16;
    double lanes[kSumLanes] = {};
    int64_t i = 0;
    for (; i + kSumLanes <= numel; i += kSumLanes)
        for (int64_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += square(i + lane);
    for (int64_t lane = 0; i + lane < numel; ++lane) lanes[lane] += square(i + lane);
    double total = 0;
    for (const double lane : lanes) total += lane;
    return total;
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
