// The arithmetic of optimizers on elements, the same on processors and GPUs: both include this
// file, and all give equal bits. Sources: see flat_optimizer.h. Everything here has internal
// linkage, because it is compiled once per instruction set.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "kernels/element/update_arrays.h"

// NOLINTBEGIN(misc-definitions-in-headers): each instruction set has its own copy, as said above.
namespace dslaunch::kernels {
namespace {

// Returns a * b + c, rounded once on every processor. It is used wherever PyTorch's build fuses a
// product and a sum; the compilers fuse nothing else (-ffp-contract=off, -fmad=false).
DSL_HOST_DEVICE inline float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

DSL_HOST_DEVICE inline float square_root(float value) {
#if defined(__CUDA_ARCH__)
    return __fsqrt_rn(value);
#else
    return __builtin_sqrtf(value);
#endif
}

// The rule of Adam for n elements. Every rule has these arguments: the gradient `g`, which the rule
// may overwrite; the states; and the parameters `p`, which the rule changes only if kWrites.
template <AdamForm kForm>
struct AdamRule {
    static constexpr bool kFrozen = kForm == AdamForm::kFrozen;
    static constexpr bool kLargest = kForm == AdamForm::kLargest;
    AdamConstants c;
    template <bool kWrites>
    DSL_HOST_DEVICE inline void apply(float* __restrict g, float* __restrict m, float* __restrict v,
                                      float* __restrict largest, float* __restrict p,
                                      int64_t n) const {
        for (int64_t i = 0; i < n; ++i) {
            // A linear interpolation can start at either end. As in PyTorch, this code starts at
            // the end that is nearer to the result.
            const float rest = g[i] - m[i];
            const float mixed = c.beta1_rest < 0.5F ? fma(c.beta1_rest, rest, m[i])
                                                    : fma(c.beta1_rest - 1.0F, rest, g[i]);
            const float next_m = kFrozen && !(v[i] > 0) ? 0.0F : mixed;
            const float next_v = kFrozen ? v[i] : fma(c.beta2_rest * g[i], g[i], v[i] * c.beta2);
            m[i] = next_m;
            if constexpr (!kFrozen) v[i] = next_v;
            float variance = next_v;
            if constexpr (kLargest) {
                // A NaN stays, as in PyTorch's maximum.
                variance = next_v > largest[i] || next_v != next_v ? next_v : largest[i];
                largest[i] = variance;
            }
            if constexpr (kWrites) {
                const float root = denominator_root(variance);
                const float denominator = kForm == AdamForm::kEpsInside ? root : root + c.eps;
                p[i] = p[i] * c.parameter_keep - c.step_size * next_m / denominator;
            }
        }
    }

  private:
    // Returns the root of VARIANCE, with eps (kEpsInside) or bias correction (kUsual, kLargest).
    DSL_HOST_DEVICE inline float denominator_root(float variance) const {
        if constexpr (kForm == AdamForm::kEpsInside) return square_root(variance + c.eps);
        const float root = square_root(variance);
        return kFrozen ? root : root / c.correction2_sqrt;
    }
};
using Adam = AdamRule<AdamForm::kUsual>;
using FrozenAdam = AdamRule<AdamForm::kFrozen>;
using AmsgradAdam = AdamRule<AdamForm::kLargest>;
using EpsInsideAdam = AdamRule<AdamForm::kEpsInside>;

struct Adagrad {
    AdagradConstants c;
    template <bool kWrites>
    DSL_HOST_DEVICE inline void apply(float* __restrict g, float* __restrict sum, float* /*second*/,
                                      float* /*third*/, float* __restrict p, int64_t n) const {
        for (int64_t i = 0; i < n; ++i) {
            const float next = fma(g[i], g[i], sum[i]);
            sum[i] = next;
            if constexpr (kWrites) p[i] -= c.lr * g[i] / (square_root(next) + c.eps);
        }
    }
};

struct Lion {
    LionConstants c;
    template <bool kWrites>
    DSL_HOST_DEVICE inline void apply(float* __restrict g, float* __restrict m, float* /*second*/,
                                      float* /*third*/, float* __restrict p, int64_t n) const {
        for (int64_t i = 0; i < n; ++i) {
            const float way = fma(g[i], c.beta1_rest, m[i] * c.beta1);
            m[i] = fma(g[i], c.beta2_rest, m[i] * c.beta2);
            if constexpr (kWrites) {
                const float up = way > 0 ? 1.0F : way;  // 0 and NaN stay as they are
                const float sign = way < 0 ? -1.0F : up;
                p[i] = p[i] * c.parameter_keep - c.lr * sign;
            }
        }
    }
};

struct Sgd {
    SgdConstants c;
    template <bool kWrites>
    DSL_HOST_DEVICE inline void apply(float* __restrict g, float* __restrict m, float* /*second*/,
                                      float* /*third*/, float* __restrict p, int64_t n) const {
        if (m != nullptr)
            for (int64_t i = 0; i < n; ++i) {
                const float next =
                    c.first_step ? g[i] : fma(g[i], c.damping_rest, m[i] * c.momentum);
                m[i] = next;
                g[i] = c.nesterov ? fma(next, c.momentum, g[i]) : next;
            }
        if constexpr (kWrites)
            for (int64_t i = 0; i < n; ++i) p[i] = fma(-c.lr, g[i], p[i]);
    }
};

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
