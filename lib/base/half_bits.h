// Rounds one fp32 number to a 16-bit type or to a whole number, and widens 16-bit numbers, with the
// same result on processors and GPUs. Rounds to nearest even. A NaN becomes quiet and keeps its
// sign and its upper bits, as on x86 and ARM. PyTorch converts a NaN to fp16 in the same way. To
// bf16, it converts a NaN to 0x7FC0 or 0xFFFF, depending on the processor. All functions have
// internal linkage, because each instruction set needs its own compiled version.
#pragma once

#include <cstdint>

#include "base/host_device.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set needs its own definitions, as said
// above.
namespace dslaunch {

// `(x + kWholeShift) - kWholeShift` is the whole number nearest to x, ties to even, if |x| < 2^22:
// at 1.5 * 2^23 the unit of fp32 is 1.
inline constexpr float kWholeShift = 0x1.8p23F;

namespace {

DSL_HOST_DEVICE inline bool is_nan_bits(uint32_t bits) {
    return (bits & 0x7FFFFFFFU) > 0x7F800000U;
}

// Rounds VALUE to bf16. If rounding overflows the mantissa, the exponent grows by one; the largest
// numbers become infinity.
DSL_HOST_DEVICE inline uint16_t bf16_of(float value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40U;
    return static_cast<uint16_t>(is_nan_bits(bits) ? quiet : rounded);
}

// Returns VALUE, which is not negative, rounded up to a bf16. Returns the same bits for every NaN,
// unlike bf16_of(), which keeps the sign and the payload of a NaN: they depend on the processor.
DSL_HOST_DEVICE inline uint16_t bf16_above(float value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    return is_nan_bits(bits) ? uint16_t{0x7FC0} : static_cast<uint16_t>((bits + 0xFFFFU) >> 16);
}

DSL_HOST_DEVICE inline float fp32_of_bf16(uint16_t half) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(half) << 16);
}

DSL_HOST_DEVICE inline uint16_t fp16_of(float value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    constexpr uint32_t kRebias = 112U << 23, kInfinity = 0x7C00U;
    const uint32_t normal = (magnitude - kRebias + 0xFFFU + (bits >> 13 & 1U)) >> 13;
    // fp32 numbers just above 1/2 are 2^-24 apart, which is also the distance between fp16
    // subnormal numbers. Adding 1/2 therefore rounds to a multiple of that distance.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5F;
    const uint32_t subnormal = __builtin_bit_cast(uint32_t, shifted) - 0x3F000000U;
    const uint32_t bounded = normal < kInfinity ? normal : kInfinity;
    const uint32_t finite = magnitude < 0x38800000U ? subnormal : bounded;
    const uint32_t quiet = 0x7E00U | (bits >> 13 & 0x3FFU);
    return static_cast<uint16_t>((bits >> 16 & 0x8000U) | (is_nan_bits(bits) ? quiet : finite));
}

DSL_HOST_DEVICE inline float fp32_of_fp16(uint16_t half) {
    const uint32_t magnitude = half & 0x7FFFU;
    constexpr uint32_t kRebias = 112U << 23, kQuiet = 0x400000U;
    const uint32_t normal = (magnitude << 13) + kRebias;
    const uint32_t largest = (normal + kRebias) | (magnitude > 0x7C00U ? kQuiet : 0U);
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F;
    const uint32_t small = __builtin_bit_cast(uint32_t, subnormal);
    const uint32_t finite = magnitude < 0x400U ? small : normal;
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
    return __builtin_bit_cast(float, sign | (magnitude < 0x7C00U ? finite : largest));
}

}  // namespace
}  // namespace dslaunch
// NOLINTEND(misc-definitions-in-headers)
