// The loops of packing.h, compiled once per instruction set by the file that includes this one.
// They are plain loops that the compiler vectorises element by element, so every vector width gives
// the same bits. Everything here has internal linkage.
#pragma once

#include <cmath>

#include "kernels/cpu/block_loops.h"
#include "kernels/cpu/half_loops.h"
#include "kernels/cpu/kernel_tables.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

constexpr float kCodeMax = 127.0F;
constexpr float kSquareMax = 255.0F * 255.0F;

// Returns 16 pseudo-random bits for element i.
inline uint32_t drawn_bits(uint32_t seed, int64_t i) {
    uint32_t bits = (seed + static_cast<uint32_t>(i)) * 0x9E3779B1U;
    bits ^= bits >> 15;
    bits *= 0x85EBCA77U;
    bits ^= bits >> 13;
    bits *= 0xC2B2AE3DU;
    return bits >> 16;
}

// Returns the pseudo-random number of element i, a multiple of 2^-16 in [0, 1).
inline float drawn(uint32_t seed, int64_t i) {
    return static_cast<float>(static_cast<int32_t>(drawn_bits(seed, i))) * 0x1p-16F;
}

void packing_to_bf16(const float* __restrict values, uint16_t* __restrict out, int64_t numel,
                     uint32_t seed) {
    for (int64_t i = 0; i < numel; ++i) {
        const auto bits = __builtin_bit_cast(uint32_t, values[i]);
        const bool finite = (bits & kSignMask) < kInfinityBits;
        const uint32_t carried = bits + (finite ? drawn_bits(seed, i) : 0U);
        const uint32_t quiet = is_nan_bits(bits) ? 0x40U : 0U;
        out[i] = static_cast<uint16_t>(carried >> 16 | quiet);
    }
}

// Returns true if a block's scale can be used as a divisor. If the scale is 0 or not finite, all
// codes of the block are set so that each element is read back as the scale: 0, or NaN.
inline bool has_scale(uint32_t largest) {
    return largest > 0 && largest < kInfinityBits;
}

inline float scale_of(uint32_t largest) {
    return __builtin_bit_cast(float, largest < kInfinityBits ? largest : 0x7FC00000U);
}

// Sets the block's SCALE. Returns false if it also set the codes, because the scale cannot be used
// as a divisor.
template <typename T>
inline bool begin_block(const float* __restrict values, float& scale, T* __restrict codes,
                        int64_t numel) {
    const uint32_t largest = largest_bits(values, numel);
    scale = scale_of(largest);
    if (has_scale(largest)) return true;
    for (int64_t i = 0; i < numel; ++i) codes[i] = 1;
    return false;
}

inline int64_t block_numel(int64_t first, int64_t numel) {
    return numel - first < kPackedBlock ? numel - first : kPackedBlock;
}

// Rounding of a quotient to a code, which is a whole number: to the nearest one, or stochastically.
struct ToNearest {
    int32_t operator()(float quotient, float /*zero*/, int64_t /*i*/) const {
        return nearest_whole(quotient);
    }
};
struct ToDrawn {
    uint32_t seed;
    // ZERO makes the sum positive, so that truncation rounds down; it is subtracted at the end. If
    // the quotient is whole, the sum is exact.
    int32_t operator()(float quotient, float zero, int64_t i) const {
        return static_cast<int32_t>(quotient + zero + drawn(seed, i)) - static_cast<int32_t>(zero);
    }
};

// Writes codes in which code k stands for k / 127 of the scale.
template <typename Round>
inline void codes_of_8_bits(const float* __restrict values, float* __restrict scales,
                            int8_t* __restrict codes, int64_t numel, const Round& round) {
    for (int64_t first = 0; first < numel; first += kPackedBlock) {
        const int64_t n = block_numel(first, numel);
        float& scale_there = scales[first / kPackedBlock];
        if (!begin_block(values + first, scale_there, codes + first, n)) continue;
        const float scale = scale_there;
        for (int64_t i = first; i < first + n; ++i)
            codes[i] = static_cast<int8_t>(round(values[i] / scale * kCodeMax, 128.0F, i));
    }
}

void packing_to_int8(const float* values, float* scales, int8_t* codes, int64_t numel,
                     const uint32_t* seed) {
    if (seed == nullptr) return codes_of_8_bits(values, scales, codes, numel, ToNearest{});
    codes_of_8_bits(values, scales, codes, numel, ToDrawn{*seed});
}

void packing_from_int8(const float* __restrict scales, const int8_t* __restrict codes,
                       float* __restrict out, int64_t numel) {
    for (int64_t first = 0; first < numel; first += kPackedBlock) {
        const float scale = scales[first / kPackedBlock];
        const int64_t end = first + block_numel(first, numel);
        for (int64_t i = first; i < end; ++i)
            out[i] = scale * (static_cast<float>(codes[i]) / kCodeMax);
    }
}

constexpr float kPairCodeMax = 7.0F;
constexpr float kPairCodeZero = 8.0F;

// Returns the code of element i, from 1 to 15: code k stands for (k - 8) / 7 of the scale.
template <typename Round>
inline uint32_t code_of_4_bits(const float* values, int64_t i, float scale, const Round& round) {
    const float quotient = values[i] / scale * kPairCodeMax;
    return static_cast<uint32_t>(round(quotient, kPairCodeZero, i) + 8);
}

template <typename Round>
inline void codes_of_4_bits(const float* __restrict values, float* __restrict scales,
                            uint8_t* __restrict codes, int64_t numel, const Round& round) {
    for (int64_t first = 0; first < numel; first += kPackedBlock) {
        const int64_t n = block_numel(first, numel);
        const int64_t pairs = (n + 1) / 2;
        uint8_t* const pair = codes + first / 2;
        const uint32_t largest = largest_bits(values + first, n);
        const float scale = scale_of(largest);
        scales[first / kPackedBlock] = scale;
        if (!has_scale(largest)) {
            // Code 15 stands for the scale itself, which is 0 or NaN here.
            for (int64_t i = 0; i < pairs; ++i) pair[i] = 0xFF;
            continue;
        }
        const int64_t whole = n / 2;
        for (int64_t i = 0; i < whole; ++i)
            pair[i] =
                static_cast<uint8_t>(code_of_4_bits(values, first + i, scale, round) |
                                     code_of_4_bits(values, first + pairs + i, scale, round) << 4);
        if (whole < pairs)
            pair[whole] = static_cast<uint8_t>(code_of_4_bits(values, first + whole, scale, round));
    }
}

void packing_to_int4(const float* values, float* scales, uint8_t* codes, int64_t numel,
                     const uint32_t* seed) {
    if (seed == nullptr) return codes_of_4_bits(values, scales, codes, numel, ToNearest{});
    codes_of_4_bits(values, scales, codes, numel, ToDrawn{*seed});
}

inline float value_of_4_bits(float scale, int32_t code) {
    return scale * ((static_cast<float>(code) - kPairCodeZero) / kPairCodeMax);
}

void packing_from_int4(const float* __restrict scales, const uint8_t* __restrict codes,
                       float* __restrict out, int64_t numel) {
    for (int64_t first = 0; first < numel; first += kPackedBlock) {
        const float scale = scales[first / kPackedBlock];
        const int64_t n = block_numel(first, numel);
        const int64_t pairs = (n + 1) / 2;
        const uint8_t* const pair = codes + first / 2;
        for (int64_t i = 0; i < pairs; ++i) out[first + i] = value_of_4_bits(scale, pair[i] & 15);
        for (int64_t i = 0; i < n / 2; ++i)
            out[first + pairs + i] = value_of_4_bits(scale, pair[i] >> 4);
    }
}

// Writes codes in which code k stands for (k / 255)^2 of the scale. A number above 0 never gets the
// code 0, because updates divide by the unpacked number.
void packing_squares_to_uint8(const float* __restrict values, float* __restrict scales,
                              uint8_t* __restrict codes, int64_t numel, uint32_t seed) {
    for (int64_t first = 0; first < numel; first += kPackedBlock) {
        const int64_t n = block_numel(first, numel);
        float& scale_there = scales[first / kPackedBlock];
        if (!begin_block(values + first, scale_there, codes + first, n)) continue;
        const float scale = scale_there;
        for (int64_t i = first; i < first + n; ++i) {
            const float value = values[i] > 0 ? values[i] : 0.0F;
            const float square = value / scale * kSquareMax;
            const auto below = static_cast<int32_t>(std::sqrt(square));
            const float part =
                (square - static_cast<float>(below * below)) / static_cast<float>(2 * below + 1);
            const int32_t nearby = below + (drawn(seed, i) < part ? 1 : 0);
            const int32_t least = value > 0 ? 1 : 0;
            codes[i] = static_cast<uint8_t>(below == 0 ? least : nearby);
        }
    }
}

void packing_squares_from_uint8(const float* __restrict scales, const uint8_t* __restrict codes,
                                float* __restrict out, int64_t numel) {
    for (int64_t first = 0; first < numel; first += kPackedBlock) {
        const float scale = scales[first / kPackedBlock];
        const int64_t end = first + block_numel(first, numel);
        for (int64_t i = first; i < end; ++i) {
            const int32_t code = codes[i];
            out[i] = scale * (static_cast<float>(code * code) / kSquareMax);
        }
    }
}

template <typename T>
inline void split(const T* __restrict values, uint8_t* __restrict planes, int64_t numel) {
    for (size_t k = 0; k < sizeof(T); ++k)
        for (int64_t i = 0; i < numel; ++i)
            planes[static_cast<int64_t>(k) * numel + i] = static_cast<uint8_t>(values[i] >> 8 * k);
}

void split_4(const uint32_t* values, uint8_t* planes, int64_t numel) {
    split(values, planes, numel);
}

void split_2(const uint16_t* values, uint8_t* planes, int64_t numel) {
    split(values, planes, numel);
}

void join_4(const uint8_t* __restrict planes, uint32_t* __restrict values, int64_t numel) {
    for (int64_t i = 0; i < numel; ++i)
        values[i] = static_cast<uint32_t>(planes[i]) |
                    static_cast<uint32_t>(planes[numel + i]) << 8 |
                    static_cast<uint32_t>(planes[2 * numel + i]) << 16 |
                    static_cast<uint32_t>(planes[3 * numel + i]) << 24;
}

void join_2(const uint8_t* __restrict planes, uint16_t* __restrict values, int64_t numel) {
    for (int64_t i = 0; i < numel; ++i)
        values[i] = static_cast<uint16_t>(planes[i] | planes[numel + i] << 8);
}

constexpr PackingKernels kPacking{packing_to_bf16,
                                  from_bf16,
                                  from_fp16,
                                  packing_to_int8,
                                  packing_from_int8,
                                  packing_to_int4,
                                  packing_from_int4,
                                  packing_squares_to_uint8,
                                  packing_squares_from_uint8,
                                  split_4,
                                  join_4,
                                  split_2,
                                  join_2};

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
