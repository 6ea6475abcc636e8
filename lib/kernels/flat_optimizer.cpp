#include "kernels/flat_optimizer.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/tables.h"
#include "kernels/update_arguments.h"

namespace dslaunch::kernels {
namespace {

// Runs STEP on RANGE with KERNEL.
template <typename Step, typename Constants>
void update(const FlatRange& range, const Step& step,
            void (*kernel)(const UpdateArrays&, ElementRange, const Constants&)) {
    if (range.numel == 0) return;
    kernel(arrays_of(range, step), {range.begin, range.numel}, constants_of(step));
}

}  // namespace

void adam_step(const FlatRange& range, const AdamStep& step, Isa isa) {
    update(range, step, kernels_of(isa).flat.adam);
}

void adagrad_step(const FlatRange& range, const AdagradStep& step, Isa isa) {
    update(range, step, kernels_of(isa).flat.adagrad);
}

void lion_step(const FlatRange& range, const LionStep& step, Isa isa) {
    update(range, step, kernels_of(isa).flat.lion);
}

void sgd_step(const FlatRange& range, const SgdStep& step, Isa isa) {
    update(range, step, kernels_of(isa).flat.sgd);
}

void ordered_sum(std::span<const float* const> sources, float scale, float* out, int64_t numel,
                 Isa isa) {
    kernels_of(isa).flat.sum(sources_of(sources), scale, out, numel);
}

void ordered_half_sum(std::span<const uint16_t* const> sources, uint16_t* out, int64_t numel,
                      DType dtype, Isa isa) {
    DSL_CHECK(!sources.empty(), "at least one source is needed");
    kernels_of(isa).flat.sum_half({nullptr, sources.data(), std::ssize(sources), half_kind(dtype)},
                                  out, numel);
}

void accumulate_sum(std::span<const float* const> sources, float scale, float* into, int64_t numel,
                    Isa isa) {
    kernels_of(isa).flat.accumulate(sources_of(sources), scale, into, numel);
}

void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype, Isa isa) {
    const FlatKernels& kernels = kernels_of(isa).flat;
    (half_kind(dtype) == NumberKind::kBf16 ? kernels.to_bf16 : kernels.to_fp16)(values, out, numel);
}

double sum_of_squares(const float* values, int64_t numel, Isa isa) {
    const FlatKernels& kernel = kernels_of(isa).flat;
    double total = 0;
    for (int64_t first = 0; first < numel; first += kNormBlockNumel)
        total += kernel.block_squares(values + first, std::min(kNormBlockNumel, numel - first));
    return total;
}

}  // namespace dslaunch::kernels
