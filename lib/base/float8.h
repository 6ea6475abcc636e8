// Converts one number between fp32 and e4m3fn, the 8-bit floating-point type of models. The type
// has 4 bits of exponent, 3 bits of mantissa and no infinity; its largest number is 448. Any thread
// may call the functions.
#pragma once

#include <bit>
#include <cstdint>

namespace dslaunch {

inline constexpr float kE4m3Max = 448;

// Rounds VALUE to the nearest e4m3fn number, ties to even. A magnitude above 464 becomes NaN, as in
// PyTorch: 464 is halfway between 448 and the next code, which means NaN.
[[nodiscard]] inline uint8_t e4m3_of(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80U);
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    constexpr uint32_t kNan = 0x7F, kRebias = 120U << 23;
    if (magnitude >= std::bit_cast<uint32_t>(480.0F)) return static_cast<uint8_t>(sign | kNan);
    if (magnitude < std::bit_cast<uint32_t>(0x1p-6F)) {
        // fp32 numbers just above 2^14 are 2^-9 apart, which is also the distance between e4m3fn
        // subnormal numbers. Adding 2^14 therefore rounds to a multiple of that distance.
        const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
        return static_cast<uint8_t>(
            sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1p14F)));
    }
    return static_cast<uint8_t>(sign |
                                ((magnitude - kRebias + 0x7FFFFU + (magnitude >> 20 & 1U)) >> 20));
}

[[nodiscard]] inline float fp32_of_e4m3(uint8_t code) {
    const uint32_t magnitude = code & 0x7FU, sign = static_cast<uint32_t>(code & 0x80U) << 24;
    if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000U);
    if (magnitude < 8) {
        const float small = static_cast<float>(magnitude) * 0x1p-9F;
        return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(small));
    }
    return std::bit_cast<float>(sign | ((magnitude << 20) + (120U << 23)));
}

}  // namespace dslaunch
