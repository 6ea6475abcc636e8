#include "kernels/flat_optimizer.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "kernels/cpu/flat_kernels.h"

namespace dslaunch::kernels {
namespace {

// The best one comes first.
constexpr Isa kIsas[] = {Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2, Isa::kNeon, Isa::kScalar};

#if defined(__x86_64__)
// The processor itself is asked: clang 14's __builtin_cpu_supports does not know the name.
bool has_f16c() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

const kernels::FlatKernels& flat_kernels_of(Isa isa) {
    DSL_CHECK(isa_available(isa), "this processor or build lacks {}", isa_name(isa));
#if defined(__x86_64__)
    if (isa == Isa::kAvx2) return kernels::kAvx2Kernels;
    if (isa == Isa::kAvx512) return kernels::kAvx512Kernels;
    if (isa == Isa::kAvx512Bf16) return kernels::kAvx512Bf16Kernels;
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return kernels::kNeonKernels;
#endif
    return kernels::kScalarKernels;
}

kernels::Sources sources_of(std::span<const float* const> pointers) {
    DSL_CHECK(!pointers.empty(), "at least one source is needed");
    return {pointers.data(), nullptr, std::ssize(pointers), kernels::NumberKind::kFp32};
}

kernels::NumberKind half_kind(DType dtype) {
    DSL_CHECK(is_half(dtype), "{} is no half", dtype_name(dtype));
    return dtype == DType::kBF16 ? kernels::NumberKind::kBf16 : kernels::NumberKind::kFp16;
}

kernels::Sources gradients_of(const FlatRange& range) {
    DSL_CHECK(range.gradients.empty() || range.half_gradients.empty(),
              "gradients are fp32 or 16-bit, not both");
    if (range.half_gradients.empty()) return sources_of(range.gradients);
    return {nullptr, range.half_gradients.data(), std::ssize(range.half_gradients),
            half_kind(range.gradient_dtype)};
}

// Null for an array that is not there.
template <typename T>
T* start_of(std::span<T> values, const FlatRange& range) {
    const int64_t end = range.begin + range.numel;
    DSL_CHECK(values.empty() || std::ssize(values) >= end, "{} elements, not {}", values.size(),
              end);
    return values.empty() ? nullptr : values.data();
}

// A copy of so many elements leaves no cache as it came, and nobody reads it before it has left.
constexpr int64_t kStreamNumelMin = int64_t{1} << 20;

kernels::UpdateArrays arrays_of(const FlatRange& range, double l2_decay) {
    DSL_CHECK(range.begin >= 0 && range.numel >= 0, "[{}, +{})", range.begin, range.numel);
    kernels::UpdateArrays arrays{};
    arrays.gradients = gradients_of(range);
    arrays.gradient_scale = range.gradient_scale;
    arrays.l2_decay = static_cast<float>(l2_decay);
    arrays.parameters = start_of(range.parameters, range);
    arrays.decay_parameters =
        arrays.parameters != nullptr ? arrays.parameters : start_of(range.decay_parameters, range);
    DSL_CHECK(l2_decay == 0 || arrays.decay_parameters != nullptr,
              "L2 decay needs parameters to read");
    arrays.first = start_of(range.first, range);
    arrays.second = start_of(range.second, range);
    arrays.half = start_of(range.half_parameters, range);
    arrays.half_kind = half_kind(range.half_dtype);
    arrays.streams = arrays.half != nullptr && range.numel >= kStreamNumelMin;
    DSL_CHECK(arrays.half == nullptr || arrays.parameters != nullptr,
              "a half copy needs parameters to follow");
    return arrays;
}

std::optional<Isa> isa_from_name(std::string_view name) {
    for (const Isa isa : kIsas)
        if (isa_name(isa) == name) return isa;
    return std::nullopt;
}

}  // namespace

bool isa_available(Isa isa) {
#if defined(__x86_64__)
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                        has_f16c();
    if (isa == Isa::kAvx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    if (isa == Isa::kAvx512) return avx512;
    if (isa == Isa::kAvx512Bf16) return avx512 && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
    if (isa == Isa::kNeon) return true;
#endif
    return isa == Isa::kScalar;
}

Isa best_isa() {
    static const Isa best = *std::ranges::find_if(kIsas, isa_available);
    return best;
}

Isa isa_in_use() {
    static const Isa isa = [] {
        const char* const name = std::getenv(kIsaVariable);
        if (name == nullptr) return best_isa();
        const std::optional<Isa> named = isa_from_name(name);
        if (named && isa_available(*named)) return *named;
        std::string known;
        for (const Isa one : kIsas)
            if (isa_available(one)) known += fmt::format(" {}", isa_name(one));
        fail(ExitCode::kSetup,
             "{}={}: no instruction set that this processor and build have; these:{}", kIsaVariable,
             name, known);
    }();
    return isa;
}

std::string_view isa_name(Isa isa) {
    switch (isa) {
        case Isa::kScalar:
            return "scalar";
        case Isa::kAvx2:
            return "avx2";
        case Isa::kAvx512:
            return "avx512";
        case Isa::kAvx512Bf16:
            return "avx512_bf16";
        case Isa::kNeon:
            return "neon";
    }
    return "unknown";
}

void adam_step(const FlatRange& range, const AdamStep& step, Isa isa) {
    DSL_CHECK(step.step >= 1, "step {}", step.step);
    if (range.numel == 0) return;
    const auto count = static_cast<double>(step.step);
    const double correction1 = step.bias_correction ? 1 - std::pow(step.beta1, count) : 1;
    const double correction2 = step.bias_correction ? 1 - std::pow(step.beta2, count) : 1;
    const double decoupled = step.decoupled_decay ? step.lr * step.weight_decay : 0;
    const kernels::AdamConstants constants{
        .parameter_keep = static_cast<float>(1 - decoupled),
        .beta1_rest = static_cast<float>(1 - step.beta1),
        .beta2 = static_cast<float>(step.beta2),
        .beta2_rest = static_cast<float>(1 - step.beta2),
        .correction2_sqrt = static_cast<float>(std::sqrt(correction2)),
        .eps = static_cast<float>(step.eps),
        .step_size = static_cast<float>(step.lr / correction1)};
    const kernels::UpdateArrays arrays =
        arrays_of(range, step.decoupled_decay ? 0 : step.weight_decay);
    DSL_CHECK(arrays.first != nullptr && arrays.second != nullptr, "Adam needs two states");
    flat_kernels_of(isa).adam(arrays, {range.begin, range.numel}, constants);
}

void adagrad_step(const FlatRange& range, const AdagradStep& step, Isa isa) {
    DSL_CHECK(step.step >= 1, "step {}", step.step);
    if (range.numel == 0) return;
    const double lr = step.lr / (1 + static_cast<double>(step.step - 1) * step.lr_decay);
    const kernels::UpdateArrays arrays = arrays_of(range, step.weight_decay);
    DSL_CHECK(arrays.first != nullptr, "Adagrad needs its sum of squares");
    flat_kernels_of(isa).adagrad(
        arrays, {range.begin, range.numel},
        {.eps = static_cast<float>(step.eps), .lr = static_cast<float>(lr)});
}

void lion_step(const FlatRange& range, const LionStep& step, Isa isa) {
    if (range.numel == 0) return;
    const kernels::LionConstants constants{
        .parameter_keep = static_cast<float>(1 - step.lr * step.weight_decay),
        .beta1 = static_cast<float>(step.beta1),
        .beta1_rest = static_cast<float>(1 - step.beta1),
        .beta2 = static_cast<float>(step.beta2),
        .beta2_rest = static_cast<float>(1 - step.beta2),
        .lr = static_cast<float>(step.lr)};
    const kernels::UpdateArrays arrays = arrays_of(range, 0);
    DSL_CHECK(arrays.first != nullptr, "Lion needs its momentum");
    flat_kernels_of(isa).lion(arrays, {range.begin, range.numel}, constants);
}

void sgd_step(const FlatRange& range, const SgdStep& step, Isa isa) {
    if (range.numel == 0) return;
    const kernels::SgdConstants constants{.momentum = static_cast<float>(step.momentum),
                                          .damping_rest = static_cast<float>(1 - step.dampening),
                                          .lr = static_cast<float>(step.lr),
                                          .nesterov = step.nesterov,
                                          .first_step = step.first_step};
    kernels::UpdateArrays arrays = arrays_of(range, step.weight_decay);
    DSL_CHECK(step.momentum == 0 || arrays.first != nullptr, "momentum needs its buffer");
    if (step.momentum == 0) arrays.first = nullptr;
    flat_kernels_of(isa).sgd(arrays, {range.begin, range.numel}, constants);
}

void ordered_sum(std::span<const float* const> sources, float scale, float* out, int64_t numel,
                 Isa isa) {
    flat_kernels_of(isa).sum(sources_of(sources), scale, out, numel);
}

void accumulate_sum(std::span<const float* const> sources, float scale, float* into, int64_t numel,
                    Isa isa) {
    flat_kernels_of(isa).accumulate(sources_of(sources), scale, into, numel);
}

void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype, Isa isa) {
    const bool bf16 = half_kind(dtype) == kernels::NumberKind::kBf16;
    const kernels::FlatKernels& kernels = flat_kernels_of(isa);
    (bf16 ? kernels.to_bf16 : kernels.to_fp16)(values, out, numel);
}

void from_half(const uint16_t* values, float* out, int64_t numel, DType dtype, Isa isa) {
    const bool bf16 = half_kind(dtype) == kernels::NumberKind::kBf16;
    const kernels::FlatKernels& kernels = flat_kernels_of(isa);
    (bf16 ? kernels.from_bf16 : kernels.from_fp16)(values, out, numel);
}

double sum_of_squares(const float* values, int64_t numel, Isa isa) {
    const kernels::FlatKernels& kernel = flat_kernels_of(isa);
    double total = 0;
    for (int64_t first = 0; first < numel; first += kNormBlockNumel)
        total += kernel.block_squares(values + first, std::min(kNormBlockNumel, numel - first));
    return total;
}

}  // namespace dslaunch::kernels
