// Activations in fewer bits, compiled like row_major_loops.h. Everything here has internal linkage.
#pragma once

#include "kernels/matrix/cpu/lanes.h"
#include "kernels/matrix/cpu/matrix_kernels.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own, as said above.
namespace dslaunch::kernels {
namespace {

constexpr float kNotANumber = __builtin_nanf("");

// To the nearest whole number, even when two are: for magnitudes below 2^22.
constexpr float kWhole = 12582912.0F;  // 1.5 · 2^23

inline Floats nearest(Floats x) {
    return (x + fill(kWhole)) - fill(kWhole);
}

// The largest magnitude by its bits, where a NaN is above all numbers.
inline uint32_t largest_magnitude_bits(const float* x, int64_t numel) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < numel; ++i) {
        const uint32_t bits = __builtin_bit_cast(uint32_t, x[i]) & 0x7FFFFFFFU;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

// Magnitudes whose 127th part has no reciprocal count as 0.
constexpr float kSmallestScaled = 0x1p-118F;

inline float round_group(const float* x, int64_t numel, int64_t group, int8_t* codes) {
    const uint32_t bits = largest_magnitude_bits(x, numel);
    const bool finite = bits < 0x7F800000U;
    const float largest = finite ? __builtin_bit_cast(float, bits) : 0.0F;
    const float reciprocal = largest < kSmallestScaled ? 0.0F : 127.0F / largest;
    for (int64_t i = 0; i < numel; ++i) {
        const float value = finite ? x[i] * reciprocal : 0.0F;
        const auto whole = __builtin_bit_cast(int32_t, value + kWhole);
        codes[i] = static_cast<int8_t>(whole - __builtin_bit_cast(int32_t, kWhole));
    }
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
