// The loops of flat_optimizer.h, compiled once per instruction set by the file that includes this
// one. Plain loops that the compiler vectorises element by element, so that every width rounds
// alike. Everything here has internal linkage.
#include <cmath>

#include "kernels/cpu/flat_kernels.h"
#include "kernels/cpu/half_loops.h"

namespace dslaunch::kernels {
namespace {

// Elements summed at once into a buffer that stays in the first-level cache.
constexpr int64_t kBlock = 1024;
// Updated at once before their fp16 copy is made: few, so that the processor works on both.
constexpr int64_t kFp16Block = 64;

// Rounded once, on every processor. Written where PyTorch's build of its kernels has one; the
// compiler adds none (-ffp-contract=off).
inline float fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}

// Where a sum goes: over what `out` held, or added to it, rounded once more.
template <bool kAdds>
inline void put(float value, float& out) {
    out = kAdds ? out + value : value;
}

// The ordered sum of elements [first, first + n), scaled, in `out` or added to it.
template <bool kAdds>
inline void sum_block(Sources sources, int64_t first, int64_t n, float scale, float* out) {
    const float* a = sources.pointers[0] + first;
    if (sources.source_count == 1) {
        for (int64_t i = 0; i < n; ++i) put<kAdds>(a[i] * scale, out[i]);
        return;
    }
    const float* b = sources.pointers[1] + first;
    if (sources.source_count == 2) {
        for (int64_t i = 0; i < n; ++i) put<kAdds>((a[i] + b[i]) * scale, out[i]);
        return;
    }
    alignas(64) float total[kBlock];
    for (int64_t i = 0; i < n; ++i) total[i] = a[i] + b[i];
    for (int64_t s = 2; s < sources.source_count; ++s) {
        const float* c = sources.pointers[s] + first;
        for (int64_t i = 0; i < n; ++i) total[i] += c[i];
    }
    for (int64_t i = 0; i < n; ++i) put<kAdds>(total[i] * scale, out[i]);
}

inline void add_decay(const float* __restrict parameters, float decay, int64_t n,
                      float* __restrict gradient) {
    for (int64_t i = 0; i < n; ++i) gradient[i] = fma(parameters[i], decay, gradient[i]);
}

// Where element i's gradient comes from: summed and scaled on the way, or prepared in a block.
struct OneSource {
    const float* a;
    float scale;
    float operator()(int64_t i) const { return a[i] * scale; }
};
struct TwoSources {
    const float* a;
    const float* b;
    float scale;
    float operator()(int64_t i) const { return (a[i] + b[i]) * scale; }
};
struct Prepared {
    const float* gradient;
    float operator()(int64_t i) const { return gradient[i]; }
};

template <bool kUpdates, bool kBf16, typename Gradient>
inline void adam_loop(Gradient gradient, uint16_t* __restrict bf16, float* __restrict p,
                      float* __restrict m, float* __restrict v, int64_t n, AdamConstants c) {
    for (int64_t i = 0; i < n; ++i) {
        const float g = gradient(i);
        // The two forms of a lerp: PyTorch takes the one that is exact at its nearer end.
        const float rest = g - m[i];
        const float next_m =
            c.beta1_rest < 0.5F ? fma(c.beta1_rest, rest, m[i]) : fma(c.beta1_rest - 1.0F, rest, g);
        const float next_v = fma(c.beta2_rest * g, g, v[i] * c.beta2);
        m[i] = next_m;
        v[i] = next_v;
        if constexpr (kUpdates) {
            const float denominator = std::sqrt(next_v) / c.correction2_sqrt + c.eps;
            const float next_p = p[i] * c.parameter_keep - c.step_size * next_m / denominator;
            p[i] = next_p;
            if constexpr (kBf16) bf16[i] = bf16_of(next_p);
        }
    }
}

template <typename Gradient>
inline void adam_block(Gradient gradient, const AdamArrays& arrays, int64_t first, int64_t n,
                       const AdamConstants& c) {
    float* m = arrays.momentum + first;
    float* v = arrays.variance + first;
    float* p = arrays.parameters + (arrays.parameters == nullptr ? 0 : first);
    uint16_t* half = arrays.half.out + (arrays.half.out == nullptr ? 0 : first);
    if (p == nullptr)
        adam_loop<false, false>(gradient, nullptr, nullptr, m, v, n, c);
    else if (arrays.half.kind == HalfKind::kBf16)
        adam_loop<true, true>(gradient, half, p, m, v, n, c);
    else
        adam_loop<true, false>(gradient, nullptr, p, m, v, n, c);
    if (arrays.half.kind == HalfKind::kFp16) to_fp16(p, half, n);
}

// One or two sources are read where they lie; more of them, or L2 decay, go through a block. A
// bf16 copy is made in the loop of the update; fp16, whose conversion is an instruction that
// compilers do not use by themselves, after each block.
void adam(Sources sources, AdamArrays arrays, int64_t numel, const AdamConstants& constants) {
    const float scale = constants.gradient_scale;
    const bool in_place = sources.source_count <= 2 && constants.l2_decay == 0;
    const int64_t whole = arrays.half.kind == HalfKind::kFp16 ? kFp16Block : numel;
    const int64_t block = in_place ? whole : kBlock;
    alignas(64) float gradient[kBlock];
    for (int64_t first = 0; first < numel; first += block) {
        const int64_t n = numel - first < block ? numel - first : block;
        const float* a = sources.pointers[0] + first;
        if (in_place && sources.source_count == 1) {
            adam_block(OneSource{a, scale}, arrays, first, n, constants);
        } else if (in_place) {
            const float* b = sources.pointers[1] + first;
            adam_block(TwoSources{a, b, scale}, arrays, first, n, constants);
        } else {
            sum_block<false>(sources, first, n, scale, gradient);
            if (constants.l2_decay != 0)
                add_decay(arrays.decay_parameters + first, constants.l2_decay, n, gradient);
            adam_block(Prepared{gradient}, arrays, first, n, constants);
        }
    }
}

inline void momentum_block(float* __restrict g, float* __restrict m, int64_t n, SgdConstants c) {
    for (int64_t i = 0; i < n; ++i) {
        const float next = c.first_step ? g[i] : m[i] * c.momentum + g[i] * c.damping_rest;
        m[i] = next;
        g[i] = c.nesterov ? g[i] + next * c.momentum : next;
    }
}

inline void descend(const float* __restrict g, float lr, int64_t n, float* __restrict p) {
    for (int64_t i = 0; i < n; ++i) p[i] -= lr * g[i];
}

void sgd(Sources sources, AdamArrays arrays, int64_t numel, const SgdConstants& constants) {
    alignas(64) float gradient[kBlock];
    for (int64_t first = 0; first < numel; first += kBlock) {
        const int64_t n = numel - first < kBlock ? numel - first : kBlock;
        sum_block<false>(sources, first, n, constants.gradient_scale, gradient);
        if (constants.decay != 0)
            add_decay(arrays.decay_parameters + first, constants.decay, n, gradient);
        if (arrays.momentum != nullptr)
            momentum_block(gradient, arrays.momentum + first, n, constants);
        if (arrays.parameters != nullptr)
            descend(gradient, constants.lr, n, arrays.parameters + first);
        if (arrays.half.kind == HalfKind::kBf16)
            to_bf16(arrays.parameters + first, arrays.half.out + first, n);
        if (arrays.half.kind == HalfKind::kFp16)
            to_fp16(arrays.parameters + first, arrays.half.out + first, n);
    }
}

template <bool kAdds>
inline void sum_blocks(Sources sources, float scale, float* out, int64_t numel) {
    for (int64_t first = 0; first < numel; first += kBlock) {
        const int64_t n = numel - first < kBlock ? numel - first : kBlock;
        sum_block<kAdds>(sources, first, n, scale, out + first);
    }
}

void sum(Sources sources, float scale, float* out, int64_t numel) {
    sum_blocks<false>(sources, scale, out, numel);
}

void accumulate(Sources sources, float scale, float* into, int64_t numel) {
    sum_blocks<true>(sources, scale, into, numel);
}

// Element i goes to lane i mod 16; the lanes are added in order: one order of sums for every vector
// width.
double block_squares(const float* values, int64_t numel) {
    constexpr int64_t kLanes = 16;
    double lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= numel; i += kLanes)
        for (int64_t lane = 0; lane < kLanes; ++lane) {
            const double value = values[i + lane];
            lanes[lane] += value * value;
        }
    for (int64_t lane = 0; i + lane < numel; ++lane) {
        const double value = values[i + lane];
        lanes[lane] += value * value;
    }
    double total = 0;
    for (const double lane : lanes) total += lane;
    return total;
}

}  // namespace
}  // namespace dslaunch::kernels
