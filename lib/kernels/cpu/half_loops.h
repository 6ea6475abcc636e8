// Conversions between fp32 and the 16-bit types, compiled like flat_loops.h, which includes this
// file. Rounding is to nearest even. A NaN stays a NaN with its sign and its upper bits, made
// quiet: what x86's and ARM's conversions do. Everything here has internal linkage.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own, as said above.
namespace dslaunch::kernels {
namespace {

inline bool is_nan_bits(uint32_t bits) {
    return (bits & 0x7FFFFFFFU) > 0x7F800000U;
}

// A carry out of the mantissa goes to the exponent, up to infinity.
inline uint16_t bf16_of(float value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40U;
    return static_cast<uint16_t>(is_nan_bits(bits) ? quiet : rounded);
}

inline float fp32_of_bf16(uint16_t half) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(half) << 16);
}

inline uint16_t fp16_of(float value) {
    const auto bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    constexpr uint32_t kRebias = 112U << 23, kInfinity = 0x7C00U;
    const uint32_t normal = (magnitude - kRebias + 0xFFFU + (bits >> 13 & 1U)) >> 13;
    // The last place of 1/2 is 2^-24, the unit of fp16's subnormal numbers: adding 1/2 rounds to
    // it.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5F;
    const uint32_t subnormal = __builtin_bit_cast(uint32_t, shifted) - 0x3F000000U;
    const uint32_t bounded = normal < kInfinity ? normal : kInfinity;
    const uint32_t finite = magnitude < 0x38800000U ? subnormal : bounded;
    const uint32_t quiet = 0x7E00U | (bits >> 13 & 0x3FFU);
    return static_cast<uint16_t>((bits >> 16 & 0x8000U) | (is_nan_bits(bits) ? quiet : finite));
}

inline float fp32_of_fp16(uint16_t half) {
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

#if defined(__AVX512BF16__)
// 32 numbers by the processor's own conversion, which takes subnormal numbers for 0: where there is
// one, false and nothing is written.
inline bool to_bf16_by_instruction(const float* values, uint16_t* out) {
    constexpr int kSubnormal = 0x20;
    const __m512 low = _mm512_loadu_ps(values), high = _mm512_loadu_ps(values + 16);
    const auto rare = _kor_mask16(_mm512_fpclass_ps_mask(low, kSubnormal),
                                  _mm512_fpclass_ps_mask(high, kSubnormal));
    if (rare != 0) return false;
    _mm512_storeu_si512(out, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    return true;
}
#endif

void to_bf16(const float* __restrict values, uint16_t* __restrict out, int64_t numel) {
    int64_t i = 0;
#if defined(__AVX512BF16__)
    for (const int64_t whole = numel - numel % 32; i < whole; i += 32)
        if (!to_bf16_by_instruction(values + i, out + i))
            for (int64_t k = i; k < i + 32; ++k) out[k] = bf16_of(values[k]);
#endif
    for (; i < numel; ++i) out[i] = bf16_of(values[i]);
}

void from_bf16(const uint16_t* __restrict values, float* __restrict out, int64_t numel) {
    for (int64_t i = 0; i < numel; ++i) out[i] = fp32_of_bf16(values[i]);
}

void to_fp16(const float* __restrict values, uint16_t* __restrict out, int64_t numel) {
    int64_t i = 0;
#if defined(__F16C__)
    for (const int64_t whole = numel - numel % 8; i < whole; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < numel; ++i) out[i] = fp16_of(values[i]);
}

void from_fp16(const uint16_t* __restrict values, float* __restrict out, int64_t numel) {
    int64_t i = 0;
#if defined(__F16C__)
    for (const int64_t whole = numel - numel % 8; i < whole; i += 8)
        _mm256_storeu_ps(
            out + i,
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values + i))));
#endif
    for (; i < numel; ++i) out[i] = fp32_of_fp16(values[i]);
}

#if defined(__x86_64__)
// Stores past the caches, for what is written whole and not read soon: the line is not read first.
// `out` is aligned to a line, numel is of whole lines. A fence makes them visible in order.
#define DSL_STREAM_STORE
inline void stream_lines(const uint16_t* values, uint16_t* out, int64_t numel) {
#if defined(__AVX512F__)
    for (int64_t i = 0; i < numel; i += 32)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), _mm512_load_si512(values + i));
#elif defined(__AVX2__)
    for (int64_t i = 0; i < numel; i += 16)
        _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i),
                            _mm256_load_si256(reinterpret_cast<const __m256i*>(values + i)));
#else
    for (int64_t i = 0; i < numel; i += 8)
        _mm_stream_si128(reinterpret_cast<__m128i*>(out + i),
                         _mm_load_si128(reinterpret_cast<const __m128i*>(values + i)));
#endif
}

inline void stream_fence() {
    _mm_sfence();
}
#endif

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
