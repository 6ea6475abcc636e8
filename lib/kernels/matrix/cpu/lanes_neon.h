// The lanes of lanes.h in four registers of NEON, with or without dot products of bytes (ARMv8.2).
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "base/half_bits.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy.
namespace dslaunch::kernels {
namespace {

struct Floats {
    float32x4_t q[4];
};

struct Ints {
    int32x4_t q[4];
};

// The numbers of rows and outputs in one tile of a product, chosen for 32 registers.
constexpr int kTileRows = 3, kTileOutputs = 2, kByteRows = 4;

template <typename F>
[[gnu::always_inline]] inline Floats each_quad(const F& f) {
    return {{f(0), f(1), f(2), f(3)}};
}

inline Floats fill(float x) {
    return each_quad([&](int) { return vdupq_n_f32(x); });
}

inline Floats load(const float* from) {
    return each_quad([&](int i) { return vld1q_f32(from + 4 * i); });
}

inline Floats load_bf16(const uint16_t* from) {
    return each_quad(
        [&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from + 4 * i), 16)); });
}

inline Floats load_fp16(const uint16_t* from) {
    return each_quad(
        [&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + 4 * i))); });
}

inline Floats load_u8(const uint8_t* from) {
    const uint8x16_t bytes = vld1q_u8(from);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
}

inline void store(float* to, Floats a) {
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, a.q[i]);
}

inline Floats operator+(Floats a, Floats b) {
    return each_quad([&](int i) { return vaddq_f32(a.q[i], b.q[i]); });
}

inline Floats operator-(Floats a, Floats b) {
    return each_quad([&](int i) { return vsubq_f32(a.q[i], b.q[i]); });
}

inline Floats operator*(Floats a, Floats b) {
    return each_quad([&](int i) { return vmulq_f32(a.q[i], b.q[i]); });
}

inline Floats operator/(Floats a, Floats b) {
    return each_quad([&](int i) { return vdivq_f32(a.q[i], b.q[i]); });
}

inline Floats fma(Floats a, Floats b, Floats c) {
    return each_quad([&](int i) { return vfmaq_f32(c.q[i], a.q[i], b.q[i]); });
}

// Returns b if a or b is a NaN, as x86's instructions do; ARM's own would return the NaN.
inline Floats larger(Floats a, Floats b) {
    return each_quad([&](int i) { return vbslq_f32(vcgtq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]); });
}

inline Floats smaller(Floats a, Floats b) {
    return each_quad([&](int i) { return vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]); });
}

inline Floats magnitude(Floats a) {
    return each_quad([&](int i) { return vabsq_f32(a.q[i]); });
}

inline Floats where_less(Floats a, Floats b, Floats yes, Floats no) {
    return each_quad(
        [&](int i) { return vbslq_f32(vcltq_f32(a.q[i], b.q[i]), yes.q[i], no.q[i]); });
}

inline Floats times_power_of_2(Floats value, Floats power) {
    return each_quad([&](int i) {
        const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(power.q[i]), vdupq_n_s32(127));
        return vmulq_f32(value.q[i], vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
    });
}

// Returns the sums (0 + 2) + (1 + 3) of four registers.
inline float32x4_t quad_sums(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
    const float64x2_t ab = vreinterpretq_f64_f32(vaddq_f32(vzip1q_f32(a, b), vzip2q_f32(a, b)));
    const float64x2_t cd = vreinterpretq_f64_f32(vaddq_f32(vzip1q_f32(c, d), vzip2q_f32(c, d)));
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(ab, cd)),
                     vreinterpretq_f32_f64(vzip2q_f64(ab, cd)));
}

// Adds the quads in AVX-512's order: (quad 0 + quad 2) + (quad 1 + quad 3).
inline void sum_4(Floats a, Floats b, Floats c, Floats d, float* to) {
    const Floats quads =
        each_quad([&](int i) { return quad_sums(a.q[i], b.q[i], c.q[i], d.q[i]); });
    vst1q_f32(to, vaddq_f32(vaddq_f32(quads.q[0], quads.q[2]), vaddq_f32(quads.q[1], quads.q[3])));
}

inline float sum(Floats a) {
    float sums[4];
    sum_4(a, a, a, a, sums);
    return sums[0];
}

inline float largest(Floats a) {
    float all[16];
    store(all, a);
    float out = all[0];
    for (int i = 1; i < 16; ++i) out = all[i] > out ? all[i] : out;
    return out;
}

inline Floats to_floats(Ints a) {
    return each_quad([&](int i) { return vcvtq_f32_s32(a.q[i]); });
}

struct Bytes64 {
    uint8x16_t q[4];  // four codes of each of four outputs
};

inline Bytes64 load_bytes(const uint8_t* from) {
    return {{vld1q_u8(from), vld1q_u8(from + 16), vld1q_u8(from + 32), vld1q_u8(from + 48)}};
}

inline Bytes64 low_nibbles(Bytes64 a) {
    for (uint8x16_t& q : a.q) q = vandq_u8(q, vdupq_n_u8(0x0F));
    return a;
}

inline Bytes64 high_nibbles(Bytes64 a) {
    for (uint8x16_t& q : a.q) q = vshrq_n_u8(q, 4);
    return a;
}

inline Ints begin_nibbles() {
    const int32x4_t zero = vdupq_n_s32(0);
    return {{zero, zero, zero, zero}};
}

inline Ints begin_bytes(int32_t /*offset*/) {
    return begin_nibbles();
}

// Adds the products of four codes of each output and the four numbers of FACTOR.
inline int32x4_t add_dots(int32x4_t sums, int8x16_t codes, int8x16_t factor) {
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sums, codes, factor);
#else
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(codes), vget_low_s8(factor)));
    const int32x4_t high = vpaddlq_s16(vmull_high_s8(codes, factor));
    return vaddq_s32(sums, vpaddq_s32(low, high));
#endif
}

inline int8x16_t four(const int8_t* x) {
    int32_t bytes;
    __builtin_memcpy(&bytes, x, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(bytes));
}

inline Ints dot_nibbles(Ints sums, Bytes64 codes, const int8_t* x) {
    const int8x16_t factor = four(x);
    for (int i = 0; i < 4; ++i)
        sums.q[i] = add_dots(sums.q[i], vreinterpretq_s8_u8(codes.q[i]), factor);
    return sums;
}

// A code stands for the number code - 128. Flipping the upper bit of the code gives this number as
// a signed byte.
inline Ints dot_bytes(Ints sums, Bytes64 codes, const int8_t* x) {
    for (uint8x16_t& q : codes.q) q = veorq_u8(q, vdupq_n_u8(0x80));
    return dot_nibbles(sums, codes, x);
}

struct Table {
    uint8x16x4_t numbers;  // bytes of the 16 numbers
};

inline Table load_table(const float* numbers) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(numbers);
    return {{{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}}};
}

// Number C of the table is its bytes 4 C to 4 C + 3.
inline Floats look_up(Table table, Bytes64 codes, int k) {
    const int32x4_t shift = vdupq_n_s32(-8 * k);
    return each_quad([&](int i) {
        const uint32x4_t code =
            vandq_u32(vshlq_u32(vreinterpretq_u32_u8(codes.q[i]), shift), vdupq_n_u32(0xFF));
        const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), code, vdupq_n_u32(0x04040404));
        return vreinterpretq_f32_u8(vqtbl4q_u8(table.numbers, vreinterpretq_u8_u32(bytes)));
    });
}

inline void prefetch(const void* at) {
    __builtin_prefetch(at);
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
