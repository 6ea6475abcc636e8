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
#include "kernels/update_arguments.h"

namespace dslaunch::kernels {
namespace {

// The best one comes first.
constexpr Isa kIsas[] = {Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2, Isa::kNeon, Isa::kScalar};

#if defined(__x86_64__)
// The processor itself is asked, once, for that takes microseconds on a virtual machine: clang 14's
// __builtin_cpu_supports does not know the name.
bool has_f16c() {
    static const bool has = [] {
        unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
        return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
    }();
    return has;
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
    if (range.numel == 0) return;
    flat_kernels_of(isa).adam(arrays_of(range, step), {range.begin, range.numel},
                              constants_of(step));
}

void adagrad_step(const FlatRange& range, const AdagradStep& step, Isa isa) {
    if (range.numel == 0) return;
    flat_kernels_of(isa).adagrad(arrays_of(range, step), {range.begin, range.numel},
                                 constants_of(step));
}

void lion_step(const FlatRange& range, const LionStep& step, Isa isa) {
    if (range.numel == 0) return;
    flat_kernels_of(isa).lion(arrays_of(range, step), {range.begin, range.numel},
                              constants_of(step));
}

void sgd_step(const FlatRange& range, const SgdStep& step, Isa isa) {
    if (range.numel == 0) return;
    flat_kernels_of(isa).sgd(arrays_of(range, step), {range.begin, range.numel},
                             constants_of(step));
}

void ordered_sum(std::span<const float* const> sources, float scale, float* out, int64_t numel,
                 Isa isa) {
    flat_kernels_of(isa).sum(sources_of(sources), scale, out, numel);
}

void ordered_half_sum(std::span<const uint16_t* const> sources, uint16_t* out, int64_t numel,
                      DType dtype, Isa isa) {
    DSL_CHECK(!sources.empty(), "at least one source is needed");
    flat_kernels_of(isa).sum_half({nullptr, sources.data(), std::ssize(sources), half_kind(dtype)},
                                  out, numel);
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

double sum_of_squares(const float* values, int64_t numel, Isa isa) {
    const kernels::FlatKernels& kernel = flat_kernels_of(isa);
    double total = 0;
    for (int64_t first = 0; first < numel; first += kNormBlockNumel)
        total += kernel.block_squares(values + first, std::min(kNormBlockNumel, numel - first));
    return total;
}

}  // namespace dslaunch::kernels
