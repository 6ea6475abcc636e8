// The lanes of lanes.h in two registers of AVX2 with FMA and F16C, with or without AVX-VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/half_bits.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy.
namespace dslaunch::kernels {
namespace {

struct Floats {
    __m256 low, high;
};

struct Ints {
    __m256i low, high;
};

constexpr int kTileRows = 3, kTileOutputs = 2, kByteRows = 2;

inline Floats fill(float x) {
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

inline Floats load(const float* from) {
    return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

inline __m128i load_128(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

inline __m256 widen_bf16(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

inline Floats load_bf16(const uint16_t* from) {
    return {widen_bf16(load_128(from)), widen_bf16(load_128(from + 8))};
}

inline Floats load_fp16(const uint16_t* from) {
    return {_mm256_cvtph_ps(load_128(from)), _mm256_cvtph_ps(load_128(from + 8))};
}

inline Floats load_u8(const uint8_t* from) {
    const __m128i bytes = load_128(from);
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}

inline void store(float* to, Floats a) {
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
}

inline Floats operator+(Floats a, Floats b) {
    return {a.low + b.low, a.high + b.high};
}

inline Floats operator-(Floats a, Floats b) {
    return {a.low - b.low, a.high - b.high};
}

inline Floats operator*(Floats a, Floats b) {
    return {a.low * b.low, a.high * b.high};
}

inline Floats operator/(Floats a, Floats b) {
    return {a.low / b.low, a.high / b.high};
}

inline Floats fma(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

inline Floats larger(Floats a, Floats b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

inline Floats smaller(Floats a, Floats b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

inline Floats magnitude(Floats a) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}

inline Floats where_less(Floats a, Floats b, Floats yes, Floats no) {
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}

inline __m256 power_of_2(__m256 power) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvttps_epi32(power), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

inline Floats times_power_of_2(Floats value, Floats power) {
    return value * Floats{power_of_2(power.low), power_of_2(power.high)};
}

// Returns the sum (0 + 2) + (1 + 3) of each quad (four elements) of the four registers.
inline __m256 quad_sums(__m256 a, __m256 b, __m256 c, __m256 d) {
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256d low = _mm256_unpacklo_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd));
    const __m256d high = _mm256_unpackhi_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd));
    return _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high));
}

// Adds the quads in AVX-512's order: (quad 0 + quad 2) + (quad 1 + quad 3).
inline void sum_4(Floats a, Floats b, Floats c, Floats d, float* to) {
    const __m256 halves = _mm256_add_ps(quad_sums(a.low, b.low, c.low, d.low),
                                        quad_sums(a.high, b.high, c.high, d.high));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}

inline float sum(Floats a) {
    float sums[4];
    sum_4(a, a, a, a, sums);
    return sums[0];
}

inline float largest(Floats a) {
    float all[8];
    _mm256_storeu_ps(all, _mm256_max_ps(a.low, a.high));
    float out = all[0];
    for (int i = 1; i < 8; ++i) out = all[i] > out ? all[i] : out;
    return out;
}

inline Floats to_floats(Ints a) {
    return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}

struct Bytes64 {
    __m256i low, high;
};

inline Bytes64 load_bytes(const uint8_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32))};
}

inline Bytes64 low_nibbles(Bytes64 a) {
    const __m256i mask = _mm256_set1_epi8(0x0F);
    return {_mm256_and_si256(a.low, mask), _mm256_and_si256(a.high, mask)};
}

inline Bytes64 high_nibbles(Bytes64 a) {
    return low_nibbles({_mm256_srli_epi16(a.low, 4), _mm256_srli_epi16(a.high, 4)});
}

inline __m256i four(const int8_t* x) {
    int32_t bytes;
    __builtin_memcpy(&bytes, x, 4);
    return _mm256_set1_epi32(bytes);
}

inline Ints begin_nibbles() {
    return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}

#if defined(__AVXVNNI__)
inline Ints begin_bytes(int32_t offset) {
    return {_mm256_set1_epi32(offset), _mm256_set1_epi32(offset)};
}

// Uses assembly, because GCC 12 copies the sums before and after its built-in function for this
// instruction.
inline void add_dots(__m256i& sums, __m256i codes, __m256i factor) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(codes), "x"(factor));
}

inline Ints dot_nibbles(Ints sums, Bytes64 codes, const int8_t* x) {
    const __m256i factor = four(x);
    add_dots(sums.low, codes.low, factor);
    add_dots(sums.high, codes.high, factor);
    return sums;
}

inline Ints dot_bytes(Ints sums, Bytes64 codes, const int8_t* x) {
    return dot_nibbles(sums, codes, x);
}
#else
inline Ints begin_bytes(int32_t /*offset*/) {
    return begin_nibbles();
}

inline __m256i add_pairs(__m256i sums, __m256i pairs) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Both functions add two products in 16 bits, without overflow. The instruction needs an unsigned
// factor: dot_nibbles uses the codes, dot_bytes uses |code| and gives x the code's sign.
inline Ints dot_nibbles(Ints sums, Bytes64 codes, const int8_t* x) {
    const __m256i factor = four(x);
    return {add_pairs(sums.low, _mm256_maddubs_epi16(codes.low, factor)),
            add_pairs(sums.high, _mm256_maddubs_epi16(codes.high, factor))};
}

inline __m256i byte_pairs(__m256i codes, __m256i factor) {
    const __m256i code = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(factor, code));
}

inline Ints dot_bytes(Ints sums, Bytes64 codes, const int8_t* x) {
    const __m256i factor = four(x);
    return {add_pairs(sums.low, byte_pairs(codes.low, factor)),
            add_pairs(sums.high, byte_pairs(codes.high, factor))};
}
#endif

struct Table {
    __m256 low, high;  // numbers 0..7 and 8..15
};

inline Table load_table(const float* numbers) {
    return {_mm256_loadu_ps(numbers), _mm256_loadu_ps(numbers + 8)};
}

inline __m256 look_up_8(Table table, __m256i codes, int k) {
    const __m256i index = _mm256_srl_epi32(codes, _mm_cvtsi32_si128(8 * k));
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.low, index),
                            _mm256_permutevar8x32_ps(table.high, index), upper);
}

inline Floats look_up(Table table, Bytes64 codes, int k) {
    return {look_up_8(table, codes.low, k), look_up_8(table, codes.high, k)};
}

inline void prefetch(const void* at) {
    _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0);
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
