// The lanes of lanes.h in registers of AVX-512, with or without its dot products of bytes.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/half_bits.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy.
namespace dslaunch::kernels {
namespace {

using Floats = __m512;
using Ints = __m512i;

constexpr int kTileRows = 6, kTileOutputs = 4, kByteRows = 8;

inline Floats fill(float x) {
    return _mm512_set1_ps(x);
}

inline Floats load(const float* from) {
    return _mm512_loadu_ps(from);
}

inline Floats load_bf16(const uint16_t* from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

inline Floats load_fp16(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

inline Floats load_u8(const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

inline void store(float* to, Floats a) {
    _mm512_storeu_ps(to, a);
}

inline Floats fma(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
}

inline Floats larger(Floats a, Floats b) {
    return _mm512_max_ps(a, b);
}

inline Floats smaller(Floats a, Floats b) {
    return _mm512_min_ps(a, b);
}

inline Floats magnitude(Floats a) {
    return _mm512_abs_ps(a);
}

inline Floats where_less(Floats a, Floats b, Floats yes, Floats no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

inline Floats times_power_of_2(Floats value, Floats power) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvttps_epi32(power), _mm512_set1_epi32(127));
    return _mm512_mul_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23)));
}

// Adds the elements of each quad as (0 + 2) + (1 + 3), and then the four quads in the same order.
inline void sum_4(Floats a, Floats b, Floats c, Floats d, float* to) {
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const __m512 quads = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    const __m256 halves =
        _mm256_add_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}

inline float sum(Floats a) {
    float sums[4];
    sum_4(a, a, a, a, sums);
    return sums[0];
}

inline float largest(Floats a) {
    return _mm512_reduce_max_ps(a);
}

inline Floats to_floats(Ints a) {
    return _mm512_cvtepi32_ps(a);
}

using Bytes64 = __m512i;

inline Bytes64 load_bytes(const uint8_t* from) {
    return _mm512_loadu_si512(from);
}

inline Bytes64 low_nibbles(Bytes64 a) {
    return _mm512_and_si512(a, _mm512_set1_epi8(0x0F));
}

inline Bytes64 high_nibbles(Bytes64 a) {
    return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(0x0F));
}

inline __m512i four(const int8_t* x) {
    int32_t bytes;
    __builtin_memcpy(&bytes, x, 4);
    return _mm512_set1_epi32(bytes);
}

inline Ints begin_nibbles() {
    return _mm512_setzero_si512();
}

#if defined(__AVX512VNNI__)
inline Ints begin_bytes(int32_t offset) {
    return _mm512_set1_epi32(offset);
}

// Uses assembly, because GCC 12 copies the sums before and after its built-in function for this
// instruction.
inline Ints dot_nibbles(Ints sums, Bytes64 codes, const int8_t* x) {
    const auto& four_bytes = *reinterpret_cast<const int8_t(*)[4]>(x);
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(codes), "m"(four_bytes));
    return sums;
}

inline Ints dot_bytes(Ints sums, Bytes64 codes, const int8_t* x) {
    return dot_nibbles(sums, codes, x);
}
#else
inline Ints begin_bytes(int32_t /*offset*/) {
    return begin_nibbles();
}

// Both functions add two products in 16 bits, without overflow. The instruction needs an unsigned
// factor: dot_nibbles uses the codes, dot_bytes uses |code| and gives x the code's sign.
inline Ints dot_nibbles(Ints sums, Bytes64 codes, const int8_t* x) {
    const __m512i pairs = _mm512_maddubs_epi16(codes, four(x));
    return _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

inline Ints dot_bytes(Ints sums, Bytes64 codes, const int8_t* x) {
    const __m512i code = _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
    const __m512i factor = four(x);
    const __m512i turned =
        _mm512_mask_sub_epi8(factor, _mm512_movepi8_mask(code), _mm512_setzero_si512(), factor);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(code), turned);
    return _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
#endif

using Table = __m512;

inline Table load_table(const float* numbers) {
    return _mm512_loadu_ps(numbers);
}

inline Floats look_up(Table table, Bytes64 codes, int k) {
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(codes, _mm512_set1_epi32(8 * k)), table);
}

inline void prefetch(const void* at) {
    _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0);
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
