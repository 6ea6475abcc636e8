// Optimizer steps over flat buffers: one pass that sums the ranks' gradients, unscales and clips
// them, updates the fp32 states and parameters and writes their 16-bit copy. Implementations for
// AVX-512 (with its conversion to bf16 where the processor has it), AVX2, NEON and a scalar
// reference, chosen at run time. All give equal bits (no reassociation, fused multiply-adds only
// where they are written; only the payload of a NaN may differ). PyTorch 2.11's fused AVX-512
// kernels (aten/src/ATen/native/cpu/Fused*Kernel.cpp; Lion: its operators) give the same bits,
// except for a tensor's last elements, which do not fill a vector there. Sources: Kingma & Ba 2015
// (Adam), Loshchilov & Hutter 2019 (AdamW), Duchi et al. 2011 (Adagrad), Chen et al. 2023 (Lion).
// Threads: the caller's; callers split ranges (kernels/thread_team.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "kernels/flat_range.h"
#include "kernels/isa.h"

namespace dslaunch::kernels {

// REQUIRES, for all four: this processor has `isa`; the states that the rule needs are given; with
// L2 decay `parameters` or `decay_parameters` are; `half_parameters` comes with `parameters`; steps
// count from 1.
void adam_step(const FlatRange& range, const AdamStep& step, Isa isa = isa_in_use());
void adagrad_step(const FlatRange& range, const AdagradStep& step, Isa isa = isa_in_use());
// Moves the parameters by lr against the sign of the mixed momentum, and not at all where it is 0
// (Chen et al. 2023). A NaN in it makes the parameter NaN.
void lion_step(const FlatRange& range, const LionStep& step, Isa isa = isa_in_use());
// Needs range.first when step.momentum is not 0, else leaves it alone.
void sgd_step(const FlatRange& range, const SgdStep& step, Isa isa = isa_in_use());

// out[i] = (((sources[0][i] + sources[1][i]) + …) * scale: the ordered sum that makes the equal
// bits of docs/scale/zero.md. out may be one of the sources.
void ordered_sum(std::span<const float* const> sources, float scale, float* out, int64_t numel,
                 Isa isa = isa_in_use());

// Sums 16-bit sources of DTYPE, kBF16 or kF16, in the same way: adds in fp32 and rounds once as
// to_half does. REQUIRES: out overlaps no source.
void ordered_half_sum(std::span<const uint16_t* const> sources, uint16_t* out, int64_t numel,
                      DType dtype, Isa isa = isa_in_use());

// into[i] = into[i] + (((sources[0][i] + sources[1][i]) + …) * scale): the bits of ordered_sum to a
// temporary and an addition, in one pass. REQUIRES: `into` overlaps no source.
void accumulate_sum(std::span<const float* const> sources, float scale, float* into, int64_t numel,
                    Isa isa = isa_in_use());

// out[i] = values[i] rounded to nearest even in DTYPE, kBF16 or kF16, as torch's `to`: past the
// largest number to infinity, subnormal numbers kept. A NaN keeps its sign and its upper bits and
// becomes quiet; torch keeps only that it is a NaN. REQUIRES: no overlap.
void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype,
             Isa isa = isa_in_use());

// Sum of squares in fp64: partials of blocks of kNormBlockNumel elements that start at values[0],
// added in block order. Not finite when an element is not.
inline constexpr int64_t kNormBlockNumel = int64_t{16} * 1024;
[[nodiscard]] double sum_of_squares(const float* values, int64_t numel, Isa isa = isa_in_use());

}  // namespace dslaunch::kernels
