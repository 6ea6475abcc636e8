// The lanes of lanes.h as arrays: the reference implementation.
#pragma once

#include <cstdint>

#include "base/half_bits.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy.
namespace dslaunch::kernels {
namespace {

struct Floats {
    float v[16];
};

struct Ints {
    int32_t v[16];
};

// The numbers of rows and outputs in one tile of a product.
constexpr int kTileRows = 2, kTileOutputs = 2, kByteRows = 2;

template <typename F>
inline Floats each(const F& f) {
    Floats out;
    for (int i = 0; i < 16; ++i) out.v[i] = f(i);
    return out;
}

inline Floats fill(float x) {
    return each([&](int) { return x; });
}

inline Floats load(const float* from) {
    return each([&](int i) { return from[i]; });
}

inline Floats load_bf16(const uint16_t* from) {
    return each([&](int i) { return fp32_of_bf16(from[i]); });
}

inline Floats load_fp16(const uint16_t* from) {
    return each([&](int i) { return fp32_of_fp16(from[i]); });
}

inline Floats load_u8(const uint8_t* from) {
    return each([&](int i) { return static_cast<float>(from[i]); });
}

inline void store(float* to, const Floats& a) {
    for (int i = 0; i < 16; ++i) to[i] = a.v[i];
}

inline Floats operator+(const Floats& a, const Floats& b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
}

inline Floats operator-(const Floats& a, const Floats& b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
}

inline Floats operator*(const Floats& a, const Floats& b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
}

inline Floats operator/(const Floats& a, const Floats& b) {
    return each([&](int i) { return a.v[i] / b.v[i]; });
}

inline Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}

// Returns b if a or b is a NaN, as x86's instructions do.
inline Floats larger(const Floats& a, const Floats& b) {
    return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}

inline Floats smaller(const Floats& a, const Floats& b) {
    return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}

inline Floats magnitude(const Floats& a) {
    return each([&](int i) { return __builtin_fabsf(a.v[i]); });
}

// Returns a < b ? yes : no.
inline Floats where_less(const Floats& a, const Floats& b, const Floats& yes, const Floats& no) {
    return each([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}

// Returns value · 2^power, for whole powers in [-126, 127].
inline Floats times_power_of_2(const Floats& value, const Floats& power) {
    return each([&](int i) {
        const auto exponent = static_cast<uint32_t>(static_cast<int32_t>(power.v[i]) + 127);
        return value.v[i] * __builtin_bit_cast(float, exponent << 23);
    });
}

inline float sum(const Floats& a) {
    float quads[4];
    for (int i = 0; i < 4; ++i)
        quads[i] = (a.v[4 * i] + a.v[4 * i + 2]) + (a.v[4 * i + 1] + a.v[4 * i + 3]);
    return (quads[0] + quads[2]) + (quads[1] + quads[3]);
}

// Writes the four sums, each computed as in sum().
inline void sum_4(const Floats& a, const Floats& b, const Floats& c, const Floats& d, float* to) {
    to[0] = sum(a);
    to[1] = sum(b);
    to[2] = sum(c);
    to[3] = sum(d);
}

inline float largest(const Floats& a) {
    float out = a.v[0];
    for (int i = 1; i < 16; ++i) out = a.v[i] > out ? a.v[i] : out;
    return out;
}

inline Floats to_floats(const Ints& a) {
    return each([&](int i) { return static_cast<float>(a.v[i]); });
}

// 64 bytes of codes: four for each output.
struct Bytes64 {
    const uint8_t* at;
    int shift;  // right shift of a nibble
    int mask;
};

inline Bytes64 load_bytes(const uint8_t* from) {
    return {from, 0, 0xFF};
}

inline Bytes64 low_nibbles(Bytes64 a) {
    return {a.at, 0, 0x0F};
}

inline Bytes64 high_nibbles(Bytes64 a) {
    return {a.at, 4, 0x0F};
}

// Start a sum of codes times activations. Nibbles are codes 0..15. Bytes are codes 1..255, and each
// stands for the number code - 128. OFFSET makes up for the 128: it is -128 times the sum of all
// activations that are added later.
inline Ints begin_nibbles() {
    return {};
}

inline Ints begin_bytes(int32_t offset) {
    Ints out;
    for (int32_t& x : out.v) x = offset;
    return out;
}

inline Ints dot_nibbles(Ints sums, Bytes64 codes, const int8_t* x) {
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 4; ++k)
            sums.v[i] += (codes.at[4 * i + k] >> codes.shift & codes.mask) * x[k];
    return sums;
}

inline Ints dot_bytes(const Ints& sums, Bytes64 codes, const int8_t* x) {
    return dot_nibbles(sums, codes, x);
}

// The numbers for the codes 0 to 15 of a nibble. An output has four nibbles; look_up() returns, for
// every output, the number for nibble K.
struct Table {
    const float* numbers;
};

inline Table load_table(const float* numbers) {
    return {numbers};
}

inline Floats look_up(Table table, Bytes64 codes, int k) {
    return each(
        [&](int i) { return table.numbers[codes.at[4 * i + k] >> codes.shift & codes.mask]; });
}

inline void prefetch(const void* /*at*/) {}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
