// Sixteen fp32 numbers, or sixteen int32 sums of products of bytes, in the form of the current
// instruction set: one register of AVX-512, two of AVX2, four of NEON, or an array. Loops over them
// are written once and give equal bits everywhere, because every lane does the same and sums over
// lanes have one fixed order. Everything here has internal linkage.
#pragma once

#if defined(__AVX512F__)
#include "kernels/matrix/cpu/lanes_avx512.h"
#elif defined(__AVX2__)
#include "kernels/matrix/cpu/lanes_avx2.h"
#elif defined(DSL_NEON)
#include "kernels/matrix/cpu/lanes_neon.h"
#else
#include "kernels/matrix/cpu/lanes_scalar.h"
#endif

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

constexpr int64_t kLanes = 16;

// Returns the first NUMEL of 16 numbers, followed by zeros. REQUIRES: 0 < numel.
inline Floats load_part(const float* from, int64_t numel) {
    if (numel >= kLanes) return load(from);
    float all[kLanes] = {};
    for (int64_t i = 0; i < numel; ++i) all[i] = from[i];
    return load(all);
}

inline void store_part(float* to, Floats values, int64_t numel) {
    if (numel >= kLanes) return store(to, values);
    float all[kLanes];
    store(all, values);
    for (int64_t i = 0; i < numel; ++i) to[i] = all[i];
}

// The types of elements in a cache or a row-major matrix; loading them converts to fp32.
struct F32 {
    using Type = float;
    static Floats load16(const float* from) { return load(from); }
};

struct Bf16 {
    using Type = uint16_t;
    static Floats load16(const uint16_t* from) { return load_bf16(from); }
};

struct Fp16 {
    using Type = uint16_t;
    static Floats load16(const uint16_t* from) { return load_fp16(from); }
};

template <typename T>
inline Floats load_as(const typename T::Type* from, int64_t numel) {
    if (numel >= kLanes) return T::load16(from);
    typename T::Type all[kLanes] = {};
    for (int64_t i = 0; i < numel; ++i) all[i] = from[i];
    return T::load16(all);
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
