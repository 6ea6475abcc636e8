// Optimizer steps over flat fp32 buffers: one pass that sums the ranks' gradients, scales, updates
// the states and the parameters. Implementations for AVX-512, AVX2, NEON and a scalar reference,
// chosen at run time; all give equal bits (no reassociation, fused multiply-adds only where they
// are written; only the payload of a NaN may differ). Adam's bits are those of PyTorch 2.11's fused
// AVX-512 kernels (aten/src/ATen/native/cpu/FusedAdamKernel.cpp) given equal gradients, but for the
// last elements of a tensor that do not fill a vector there. Sources: Kingma & Ba 2015 (Adam),
// Loshchilov & Hutter 2019 (AdamW). Threads: none of its own; callers split ranges.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace dslaunch {

// One call updates elements [0, numel) of every pointer below.
struct FlatRange {
    int64_t numel = 0;
    std::span<const float* const> gradients;  // one per rank, summed in this order in fp32; at
                                              // least one
    float gradient_scale = 1.0F;  // multiplies the sum (1 / ranks, the clip factor, 1 / loss scale)
    float* parameters = nullptr;  // read and written; null: only the states move (stage 0's private
                                  // replicas)
    // Read for L2 decay when `parameters` is null: a replica whose parameters another rank writes.
    // They must be the values from before the step.
    const float* decay_parameters = nullptr;
    // Mixed precision: takes each element of `parameters` as the step leaves it, rounded to
    // half_dtype as to_half does; null: no copy. With it `parameters` is the fp32 master copy.
    uint16_t* half_parameters = nullptr;
    DType half_dtype = DType::kBF16;  // kBF16 or kF16
};

struct AdamStep {
    double lr = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
    bool decoupled_decay = true;  // AdamW
    bool bias_correction = true;
    int64_t step = 1;  // from 1
};

struct SgdStep {
    double lr = 0;
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;
    bool nesterov = false;
    bool first_step = false;  // the momentum buffer takes the gradient itself
};

enum class Isa { kScalar, kAvx2, kAvx512, kNeon };

// The best that this processor and this build have.
[[nodiscard]] Isa best_isa();
// Whether this processor and this build can run `isa`.
[[nodiscard]] bool isa_available(Isa isa);
[[nodiscard]] std::string_view isa_name(Isa isa);

// momentum, variance: [numel] fp32. REQUIRES: no range overlaps another; this processor has `isa`;
// with L2 decay (weight_decay != 0, not decoupled) `parameters` or `decay_parameters` is given;
// `half_parameters` comes with `parameters`; step >= 1.
void adam_step(const FlatRange& range, const AdamStep& step, float* momentum, float* variance,
               Isa isa = best_isa());

// momentum: [numel] fp32, null when step.momentum is 0.
void sgd_step(const FlatRange& range, const SgdStep& step, float* momentum, Isa isa = best_isa());

// out[i] = (((sources[0][i] + sources[1][i]) + …) * scale: the ordered sum of DESIGN rule 14. out
// may be one of the sources.
void ordered_sum(std::span<const float* const> sources, float scale, float* out, int64_t numel,
                 Isa isa = best_isa());

// into[i] = into[i] + (((sources[0][i] + sources[1][i]) + …) * scale): the bits of ordered_sum to a
// temporary and an addition, in one pass. REQUIRES: `into` overlaps no source.
void accumulate_sum(std::span<const float* const> sources, float scale, float* into, int64_t numel,
                    Isa isa = best_isa());

// out[i] = values[i] rounded to nearest even in DTYPE, kBF16 or kF16, as torch's `to`: past the
// largest number to infinity, subnormal numbers kept. A NaN keeps its sign and its upper bits and
// becomes quiet; torch keeps only that it is a NaN. REQUIRES: no overlap.
void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype, Isa isa = best_isa());

// The same numbers in fp32, exactly; a signalling fp16 NaN becomes quiet. REQUIRES: no overlap.
void from_half(const uint16_t* values, float* out, int64_t numel, DType dtype,
               Isa isa = best_isa());

// Sum of squares in fp64: partials of blocks of kNormBlockNumel elements that start at values[0],
// added in block order. Not finite when an element is not.
inline constexpr int64_t kNormBlockNumel = 16 * 1024;
[[nodiscard]] double sum_of_squares(const float* values, int64_t numel, Isa isa = best_isa());

}  // namespace dslaunch
