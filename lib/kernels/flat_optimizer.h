// Optimizer steps over flat buffers: one pass sums the ranks' gradients, unscales and clips them,
// updates the fp32 states and parameters, and writes the 16-bit copy of the parameters. There are
// implementations for AVX-512 (with its conversion to bf16 if the processor has it), for AVX2 and
// for NEON, and a scalar reference; one is chosen at run time. All give equal bits: no sum is
// reassociated, multiply-adds are fused only where the code says so, and only the payload of a NaN
// may differ. PyTorch 2.11's fused AVX-512 kernels (aten/src/ATen/native/cpu/Fused*Kernel.cpp; for
// Lion, its operators) give the same bits, except for a tensor's last elements if these do not fill
// a vector. Sources: Kingma & Ba 2015 (Adam), Loshchilov & Hutter 2019 (AdamW), Duchi et al. 2011
// (Adagrad), Chen et al. 2023 (Lion). Threads: the caller's; callers split ranges
// (kernels/thread_team.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "kernels/flat_range.h"
#include "kernels/isa.h"

namespace dslaunch::kernels {

// Update RANGE by one step. REQUIRES, for all four functions: this processor has `isa`; the states
// that the rule needs are given; if there is L2 decay, `parameters` or `decay_parameters` is given;
// if `half_parameters` is given, `parameters` is too; steps count from 1.
void adam_step(const FlatRange& range, const AdamStep& step, Isa isa = isa_in_use());
void adagrad_step(const FlatRange& range, const AdagradStep& step, Isa isa = isa_in_use());
// Moves each parameter by lr against the sign of the mixed momentum; the sign of 0 is 0 (Chen et
// al. 2023). If the mixed momentum is NaN, the parameter becomes NaN.
void lion_step(const FlatRange& range, const LionStep& step, Isa isa = isa_in_use());
// REQUIRES: range.first is given if step.momentum is not 0. If it is 0, range.first is not used.
void sgd_step(const FlatRange& range, const SgdStep& step, Isa isa = isa_in_use());

// Sets out[i] = ((sources[0][i] + sources[1][i]) + …) * scale. The order of the sum is fixed, so
// that all ranks get equal bits (docs/scale/zero.md). OUT may be one of the sources.
void ordered_sum(std::span<const float* const> sources, float scale, float* out, int64_t numel,
                 Isa isa = isa_in_use());

// Sums 16-bit sources of DTYPE, kBF16 or kF16, in the order of ordered_sum(): adds in fp32 and
// rounds the sum once, as to_half does. REQUIRES: out overlaps no source.
void ordered_half_sum(std::span<const uint16_t* const> sources, uint16_t* out, int64_t numel,
                      DType dtype, Isa isa = isa_in_use());

// Sets into[i] = into[i] + (((sources[0][i] + sources[1][i]) + …) * scale) in one pass. Gives the
// same bits as if ordered_sum() wrote to a temporary array that is then added to `into`. REQUIRES:
// `into` overlaps no source.
void accumulate_sum(std::span<const float* const> sources, float scale, float* into, int64_t numel,
                    Isa isa = isa_in_use());

// Sets out[i] = values[i] rounded to nearest even in DTYPE, kBF16 or kF16, as torch's `to` does:
// numbers above the largest one become infinity, and subnormal numbers are kept. A NaN keeps its
// sign and its upper bits and becomes quiet; torch may change these bits. REQUIRES: no overlap.
void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype,
             Isa isa = isa_in_use());

// Returns the sum of squares in fp64. Sums blocks of kNormBlockNumel elements, beginning at
// values[0], and adds the sums of the blocks in order. The result is not finite if an element is
// not finite.
inline constexpr int64_t kNormBlockNumel = int64_t{16} * 1024;
[[nodiscard]] double sum_of_squares(const float* values, int64_t numel, Isa isa = isa_in_use());

}  // namespace dslaunch::kernels
