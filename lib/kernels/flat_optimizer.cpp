#include "kernels/flat_optimizer.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/flat_kernels.h"

namespace dslaunch {
namespace {

#if defined(__x86_64__)
// Asked of the processor: clang 14's __builtin_cpu_supports does not know the name.
bool has_f16c() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

const kernels::FlatKernels& kernels_of(Isa isa) {
    DSL_CHECK(isa_available(isa), "this processor or build lacks {}", isa_name(isa));
#if defined(__x86_64__)
    if (isa == Isa::kAvx2) return kernels::kAvx2Kernels;
    if (isa == Isa::kAvx512) return kernels::kAvx512Kernels;
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return kernels::kNeonKernels;
#endif
    return kernels::kScalarKernels;
}

kernels::Sources sources_of(std::span<const float* const> pointers) {
    DSL_CHECK(!pointers.empty(), "at least one source is needed");
    return {pointers.data(), static_cast<int64_t>(pointers.size())};
}

void check_half(DType dtype) {
    DSL_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, "{} is no half", dtype_name(dtype));
}

kernels::AdamArrays arrays_of(const FlatRange& range, float* momentum, float* variance,
                              bool decays) {
    const float* read = range.parameters != nullptr ? range.parameters : range.decay_parameters;
    DSL_CHECK(!decays || read != nullptr, "L2 decay needs parameters to read");
    kernels::HalfCopy half{range.half_parameters, kernels::HalfKind::kNone};
    if (half.out != nullptr) {
        DSL_CHECK(range.parameters != nullptr, "a half copy needs parameters to follow");
        check_half(range.half_dtype);
        half.kind =
            range.half_dtype == DType::kBF16 ? kernels::HalfKind::kBf16 : kernels::HalfKind::kFp16;
    }
    return {range.parameters, read, momentum, variance, half};
}

}  // namespace

bool isa_available(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::kAvx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    if (isa == Isa::kAvx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
               has_f16c();
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return true;
#endif
    return isa == Isa::kScalar;
}

Isa best_isa() {
    static const Isa best = [] {
        for (const Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kNeon})
            if (isa_available(isa)) return isa;
        return Isa::kScalar;
    }();
    return best;
}

std::string_view isa_name(Isa isa) {
    switch (isa) {
        case Isa::kScalar:
            return "scalar";
        case Isa::kAvx2:
            return "avx2";
        case Isa::kAvx512:
            return "avx512";
        case Isa::kNeon:
            return "neon";
    }
    return "unknown";
}

void adam_step(const FlatRange& range, const AdamStep& step, float* momentum, float* variance,
               Isa isa) {
    DSL_CHECK(step.step >= 1, "step {}", step.step);
    const auto count = static_cast<double>(step.step);
    const double correction1 = step.bias_correction ? 1 - std::pow(step.beta1, count) : 1;
    const double correction2 = step.bias_correction ? 1 - std::pow(step.beta2, count) : 1;
    const bool l2 = step.weight_decay != 0 && !step.decoupled_decay;
    const double decoupled = step.decoupled_decay ? step.lr * step.weight_decay : 0;
    const kernels::AdamConstants constants{
        .gradient_scale = range.gradient_scale,
        .l2_decay = l2 ? static_cast<float>(step.weight_decay) : 0.0F,
        .parameter_keep = static_cast<float>(1 - decoupled),
        .beta1_rest = static_cast<float>(1 - step.beta1),
        .beta2 = static_cast<float>(step.beta2),
        .beta2_rest = static_cast<float>(1 - step.beta2),
        .correction2_sqrt = static_cast<float>(std::sqrt(correction2)),
        .eps = static_cast<float>(step.eps),
        .step_size = static_cast<float>(step.lr / correction1)};
    kernels_of(isa).adam(sources_of(range.gradients), arrays_of(range, momentum, variance, l2),
                         range.numel, constants);
}

void sgd_step(const FlatRange& range, const SgdStep& step, float* momentum, Isa isa) {
    DSL_CHECK(step.momentum == 0 || momentum != nullptr, "momentum needs its buffer");
    const kernels::SgdConstants constants{.gradient_scale = range.gradient_scale,
                                          .decay = static_cast<float>(step.weight_decay),
                                          .momentum = static_cast<float>(step.momentum),
                                          .damping_rest = static_cast<float>(1 - step.dampening),
                                          .lr = static_cast<float>(step.lr),
                                          .nesterov = step.nesterov,
                                          .first_step = step.first_step};
    float* buffer = step.momentum == 0 ? nullptr : momentum;
    kernels_of(isa).sgd(sources_of(range.gradients),
                        arrays_of(range, buffer, nullptr, step.weight_decay != 0), range.numel,
                        constants);
}

void ordered_sum(std::span<const float* const> sources, float scale, float* out, int64_t numel,
                 Isa isa) {
    kernels_of(isa).sum(sources_of(sources), scale, out, numel);
}

void accumulate_sum(std::span<const float* const> sources, float scale, float* into, int64_t numel,
                    Isa isa) {
    kernels_of(isa).accumulate(sources_of(sources), scale, into, numel);
}

void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype, Isa isa) {
    check_half(dtype);
    const kernels::FlatKernels& kernels = kernels_of(isa);
    (dtype == DType::kBF16 ? kernels.to_bf16 : kernels.to_fp16)(values, out, numel);
}

void from_half(const uint16_t* values, float* out, int64_t numel, DType dtype, Isa isa) {
    check_half(dtype);
    const kernels::FlatKernels& kernels = kernels_of(isa);
    (dtype == DType::kBF16 ? kernels.from_bf16 : kernels.from_fp16)(values, out, numel);
}

double sum_of_squares(const float* values, int64_t numel, Isa isa) {
    const kernels::FlatKernels& kernel = kernels_of(isa);
    double total = 0;
    for (int64_t first = 0; first < numel; first += kNormBlockNumel)
        total += kernel.block_squares(values + first, std::min(kNormBlockNumel, numel - first));
    return total;
}

}  // namespace dslaunch
