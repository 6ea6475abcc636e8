// Converts arrays of numbers between fp32 in memory and fp32, bf16 or fp16 in files and caches.
// Each number is converted as in half_bits.h. All functions have internal linkage, because each
// library compiles them with its own options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half_bits.h"
#include "base/kinds/dtype.h"

// NOLINTBEGIN(misc-definitions-in-headers): see above.
namespace dslaunch {
namespace {

// Converts the NUMEL numbers of type DTYPE at FROM to fp32. FROM need not be aligned. REQUIRES:
// DTYPE is kF32, kBF16 or kF16.
inline void to_fp32(const std::byte* from, DType dtype, int64_t numel, float* to) {
    const auto convert = [&](const auto& value_of) {
        for (int64_t i = 0; i < numel; ++i) {
            uint16_t half = 0;
            std::memcpy(&half, from + i * 2, sizeof half);
            to[i] = value_of(half);
        }
    };
    if (dtype == DType::kF32) {
        if (numel > 0) std::memcpy(to, from, static_cast<size_t>(numel) * sizeof(float));
    } else if (dtype == DType::kBF16) {
        convert([](uint16_t half) { return fp32_of_bf16(half); });
    } else {
        convert([](uint16_t half) { return fp32_of_fp16(half); });
    }
}

// Converts the NUMEL fp32 numbers at FROM to DTYPE, and writes them to TO. TO need not be aligned.
// REQUIRES: DTYPE is kF32, kBF16 or kF16.
inline void from_fp32(const float* from, DType dtype, int64_t numel, std::byte* to) {
    const auto convert = [&](const auto& half_of) {
        for (int64_t i = 0; i < numel; ++i) {
            const uint16_t half = half_of(from[i]);
            std::memcpy(to + i * 2, &half, sizeof half);
        }
    };
    if (dtype == DType::kF32) {
        if (numel > 0) std::memcpy(to, from, static_cast<size_t>(numel) * sizeof(float));
    } else if (dtype == DType::kBF16) {
        convert([](float number) { return bf16_of(number); });
    } else {
        convert([](float number) { return fp16_of(number); });
    }
}

}  // namespace
}  // namespace dslaunch
// NOLINTEND(misc-definitions-in-headers)
