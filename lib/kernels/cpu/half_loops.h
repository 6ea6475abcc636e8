// Conversion of arrays between fp32 and the 16-bit types, compiled like flat_loops.h, which
// includes this file. Everything here has internal linkage.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(DSL_NEON)
#include <arm_neon.h>
#endif

#include <cstdint>

#include "base/half_bits.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

#if defined(__AVX512BF16__)
// Converts 32 numbers with the processor's instruction, which treats subnormal numbers as 0. If one
// of the numbers is subnormal, returns false and writes nothing.
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
#elif defined(DSL_NEON)
    for (const int64_t whole = numel - numel % 4; i < whole; i += 4)
        vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(values + i))));
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
#elif defined(DSL_NEON)
    for (const int64_t whole = numel - numel % 4; i < whole; i += 4)
        vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(values + i))));
#endif
    for (; i < numel; ++i) out[i] = fp32_of_fp16(values[i]);
}

#if defined(__x86_64__)
// Stores an array directly to memory and bypasses the caches: the array is written completely and
// not read soon, so it need not be in a cache. OUT is aligned to a cache line, and numel is a whole
// number of lines. stream_fence() orders these stores before later ones.
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
