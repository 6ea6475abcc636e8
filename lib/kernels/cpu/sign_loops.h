// The loops of one_bit.h, compiled once per instruction set by the file that includes this one.
// Reading and writing signs uses explicit vector instructions; the compiler vectorises the rest.
// All loops work element by element, so every vector width gives the same bits. Everything here has
// internal linkage.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(DSL_NEON)
#include <arm_neon.h>
#endif

#include <cstdint>

#include "kernels/cpu/block_loops.h"
#include "kernels/cpu/kernel_tables.h"
#include "kernels/element/element_rules.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

constexpr int64_t kByteNumel = 8;  // elements of a byte of signs

inline float signed_scale(bool positive, float scale) {
    return positive ? scale : -scale;
}

// Returns the divisor that converts a momentum to a move.
inline float denominator_of(float variance, float eps) {
    return square_root(variance) + eps;
}

// Sets ERROR to values * factor + error; the product is rounded before the addition. Returns the
// sum of the squares of the new ERROR, added in the order of block_squares (flat_loops.h).
inline double correct(const float* __restrict values, float factor, float* __restrict error,
                      int64_t numel) {
    return sum_by_lanes(numel, [&](int64_t i) {
        const float value = values[i] * factor + error[i];
        error[i] = value;
        return static_cast<double>(value) * static_cast<double>(value);
    });
}

// Returns the sign bits of n <= kByteNumel values, and subtracts from each value its sign times
// SCALE.
inline uint8_t take_byte(float* values, float scale, int64_t n) {
    unsigned bits = 0;
    for (int64_t i = 0; i < n; ++i) {
        const bool positive = values[i] >= 0;
        values[i] -= signed_scale(positive, scale);
        bits |= (positive ? 1U : 0U) << i;
    }
    return static_cast<uint8_t>(bits);
}

#if defined(DSL_NEON)
// The places of the first and the last four elements in a byte of signs.
constexpr uint32_t kPlaces[2][4] = {{1, 2, 4, 8}, {16, 32, 64, 128}};

// Subtracts from four values their sign times SCALE. Returns PLACES where a value is positive, and
// 0 elsewhere.
inline uint32x4_t take_four(float* values, float scale, uint32x4_t places) {
    const float32x4_t value = vld1q_f32(values);
    const uint32x4_t positive = vcgezq_f32(value);
    const float32x4_t part = vbslq_f32(positive, vdupq_n_f32(scale), vdupq_n_f32(-scale));
    vst1q_f32(values, vsubq_f32(value, part));
    return vandq_u32(positive, places);
}
#endif

inline void take_signs(float* values, float scale, uint8_t* bits, int64_t numel) {
    int64_t i = 0;
#if defined(__AVX512F__)
    const __m512 zero = _mm512_setzero_ps(), plus = _mm512_set1_ps(scale),
                 minus = _mm512_set1_ps(-scale);
    for (; i + 16 <= numel; i += 16) {
        const __m512 value = _mm512_loadu_ps(values + i);
        const __mmask16 positive = _mm512_cmp_ps_mask(value, zero, _CMP_GE_OQ);
        _mm512_storeu_ps(values + i,
                         _mm512_sub_ps(value, _mm512_mask_blend_ps(positive, minus, plus)));
        const auto two = static_cast<uint16_t>(positive);
        bits[i / kByteNumel] = static_cast<uint8_t>(two);
        bits[i / kByteNumel + 1] = static_cast<uint8_t>(two >> 8);
    }
#elif defined(__AVX2__)
    const __m256 zero = _mm256_setzero_ps(), plus = _mm256_set1_ps(scale),
                 minus = _mm256_set1_ps(-scale);
    for (; i + kByteNumel <= numel; i += kByteNumel) {
        const __m256 value = _mm256_loadu_ps(values + i);
        const __m256 positive = _mm256_cmp_ps(value, zero, _CMP_GE_OQ);
        _mm256_storeu_ps(values + i, _mm256_sub_ps(value, _mm256_blendv_ps(minus, plus, positive)));
        bits[i / kByteNumel] = static_cast<uint8_t>(_mm256_movemask_ps(positive));
    }
#elif defined(DSL_NEON)
    const uint32x4_t first = vld1q_u32(kPlaces[0]), last = vld1q_u32(kPlaces[1]);
    for (; i + kByteNumel <= numel; i += kByteNumel)
        bits[i / kByteNumel] = static_cast<uint8_t>(vaddvq_u32(vorrq_u32(
            take_four(values + i, scale, first), take_four(values + i + 4, scale, last))));
#endif
    for (; i < numel; i += kByteNumel)
        bits[i / kByteNumel] =
            take_byte(values + i, scale, numel - i < kByteNumel ? numel - i : kByteNumel);
}

float sign_compress(const float* values, float factor, float* error, uint8_t* bits, int64_t numel) {
    const double squares = correct(values, factor, error, numel);
    const auto scale = static_cast<float>(__builtin_sqrt(squares / static_cast<double>(numel)));
    take_signs(error, scale, bits, numel);
    return scale;
}

template <bool kAdds>
inline void give_signs(const uint8_t* __restrict bits, float scale, float* __restrict out,
                       int64_t numel) {
    int64_t i = 0;
#if defined(__AVX512F__)
    const __m512 plus = _mm512_set1_ps(scale), minus = _mm512_set1_ps(-scale);
    for (; i + 16 <= numel; i += 16) {
        const int64_t byte = i / kByteNumel;
        const auto positive = static_cast<__mmask16>(bits[byte] | bits[byte + 1] << 8);
        __m512 value = _mm512_mask_blend_ps(positive, minus, plus);
        if constexpr (kAdds) value = _mm512_add_ps(_mm512_loadu_ps(out + i), value);
        _mm512_storeu_ps(out + i, value);
    }
#elif defined(__AVX2__)
    const __m256 plus = _mm256_set1_ps(scale), minus = _mm256_set1_ps(-scale);
    const __m256i places = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    for (; i + kByteNumel <= numel; i += kByteNumel) {
        const __m256i byte = _mm256_set1_epi32(bits[i / kByteNumel]);
        const __m256i positive = _mm256_cmpeq_epi32(_mm256_and_si256(byte, places), places);
        __m256 value = _mm256_blendv_ps(minus, plus, _mm256_castsi256_ps(positive));
        if constexpr (kAdds) value = _mm256_add_ps(_mm256_loadu_ps(out + i), value);
        _mm256_storeu_ps(out + i, value);
    }
#elif defined(DSL_NEON)
    const float32x4_t plus = vdupq_n_f32(scale), minus = vdupq_n_f32(-scale);
    for (; i + kByteNumel <= numel; i += kByteNumel)
        for (int half = 0; half < 2; ++half) {
            const uint32x4_t byte = vdupq_n_u32(bits[i / kByteNumel]);
            float32x4_t value = vbslq_f32(vtstq_u32(byte, vld1q_u32(kPlaces[half])), plus, minus);
            float* const at = out + i + 4 * half;
            if constexpr (kAdds) value = vaddq_f32(vld1q_f32(at), value);
            vst1q_f32(at, value);
        }
#endif
    for (; i < numel; ++i) {
        const unsigned byte = bits[i / kByteNumel];
        const float value = signed_scale((byte >> i % kByteNumel & 1U) != 0, scale);
        out[i] = kAdds ? out[i] + value : value;
    }
}

void sign_expand(const uint8_t* bits, float scale, float* out, int64_t numel) {
    give_signs<false>(bits, scale, out, numel);
}

void sign_expand_add(const uint8_t* bits, float scale, float* out, int64_t numel) {
    give_signs<true>(bits, scale, out, numel);
}

void sign_moves(const LocalMoves& arrays, float* out) {
    const float* p = arrays.parameters;
    const float* meeting = arrays.meeting;
    const float* v = arrays.variance;
    for (int64_t i = 0; i < arrays.numel; ++i)
        out[i] = (p[i] - meeting[i]) * denominator_of(v[i], arrays.eps);
}

void sign_take_moves(const LocalMoves& arrays, const float* mean, float lrs) {
    float* p = arrays.parameters;
    float* meeting = arrays.meeting;
    float* m = arrays.momentum;
    const float* v = arrays.variance;
    for (int64_t i = 0; i < arrays.numel; ++i) {
        const float denominator = denominator_of(v[i], arrays.eps);
        const float decayed = arrays.decay * meeting[i] * denominator;
        const bool trained = v[i] > 0;
        const float next = meeting[i] + (trained ? mean[i] / denominator : 0.0F);
        m[i] = trained ? -mean[i] / lrs - decayed : 0.0F;
        meeting[i] = next;
    }
    if (p == nullptr) return;
    for (int64_t i = 0; i < arrays.numel; ++i) p[i] = meeting[i];
}

// Updates the variance FRESH with the gradient that turned BEFORE into MOMENTUM.
float sign_fresh(const FreshVariance& arrays) {
    const auto beta1 = static_cast<float>(arrays.beta1), beta2 = static_cast<float>(arrays.beta2);
    const auto beta1_rest_inverse = static_cast<float>(1 / (1 - arrays.beta1));
    const auto beta2_rest = static_cast<float>(1 - arrays.beta2);
    const float* before = arrays.before;
    const float* momentum = arrays.momentum;
    const float* v = arrays.variance;
    float* fresh = arrays.fresh;
    constexpr int64_t kLanes = 16;
    float lanes[kLanes] = {};
    for (int64_t begin = 0; begin < arrays.numel; begin += kLanes) {
        const int64_t n = arrays.numel - begin < kLanes ? arrays.numel - begin : kLanes;
        for (int64_t lane = 0; lane < n; ++lane) {
            const int64_t i = begin + lane;
            const bool trained = v[i] > 0;
            const float mixed = trained ? momentum[i] : 0.0F;
            const float gradient = (mixed - beta1 * before[i]) * beta1_rest_inverse;
            const float next = fma(beta2_rest * gradient, gradient, fresh[i] * beta2);
            fresh[i] = next;
            const float ratio = denominator_of(v[i], arrays.eps) / denominator_of(next, arrays.eps);
            lanes[lane] = trained && ratio > lanes[lane] ? ratio : lanes[lane];
        }
    }
    float largest = 0;
    for (const float lane : lanes) largest = lane > largest ? lane : largest;
    return largest;
}

constexpr SignKernels kSigns{sign_compress, sign_expand,     sign_expand_add,
                             sign_moves,    sign_take_moves, sign_fresh};

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
