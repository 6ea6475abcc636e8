// Rounding of activations to fewer bits, compiled like row_major_loops.h. Everything here has
// internal linkage.
#pragma once

#include "base/half_bits.h"
#include "kernels/cpu/block_loops.h"
#include "kernels/matrix/cpu/lanes.h"
#include "kernels/matrix/cpu/matrix_kernels.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

constexpr float kNotANumber = __builtin_nanf("");

// Rounds each lane as nearest_whole() does.
inline Floats nearest(Floats x) {
    return (x + fill(kWholeShift)) - fill(kWholeShift);
}

// A group counts as 0 if its largest magnitude is below this limit, because the reciprocal of its
// scale could overflow.
constexpr float kSmallestScaled = 0x1p-118F;

inline float round_group(const float* x, int64_t numel, int64_t group, int8_t* codes) {
    const uint32_t bits = largest_bits(x, numel);
    const bool finite = bits < kInfinityBits;
    const float largest = finite ? __builtin_bit_cast(float, bits) : 0.0F;
    const float reciprocal = largest < kSmallestScaled ? 0.0F : 127.0F / largest;
    for (int64_t i = 0; i < numel; ++i)
        codes[i] = static_cast<int8_t>(nearest_whole(finite ? x[i] * reciprocal : 0.0F));
    for (int64_t i = numel; i < group; ++i) codes[i] = 0;
    if (!finite) return kNotANumber;
    return largest < kSmallestScaled ? 0.0F : largest / 127.0F;
}

void round_row(const float* __restrict x, int64_t in, int64_t group, const RoundedRow& to) {
    int8_t codes[kGroupMax];
    for (int64_t g = 0, k = 0; k < in; ++g, k += group) {
        const float scale = round_group(x + k, in - k < group ? in - k : group, group, codes);
        int32_t sum = 0;
        for (int64_t i = 0; i < group; ++i) sum += codes[i];
        for (int64_t i = 0; i < group; i += 4)
            __builtin_memcpy(to.codes + (k + i) * kRoundedRows, codes + i, 4);
        to.scales[g * kRoundedRows] = scale;
        to.offsets[g * kRoundedRows] = -128 * sum;
        to.scaled_sums[g * kRoundedRows] = scale * static_cast<float>(sum);
    }
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
