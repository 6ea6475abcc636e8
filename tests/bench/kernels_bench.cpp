// The flat kernels for tests/bench/kernels.py: a shared library of plain functions. They work on
// the memory of kernels.py's tensors, with the number of threads that it gives. All functions
// return 0, or 1 if the processor does not have the named instruction set.
#include <memory>
#include <optional>
#include <string_view>

#include "kernels/flat_optimizer.h"
#include "kernels/thread_team.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::kernels;

std::optional<Isa> isa_named(std::string_view name) {
    for (const Isa isa : kIsas)
        if (isa_name(isa) == name && isa_available(isa)) return isa;
    return std::nullopt;
}

ThreadTeam& team_of(int threads) {
    static std::unique_ptr<ThreadTeam> team;
    if (!team || team->threads() != threads) team = std::make_unique<ThreadTeam>(threads);
    return *team;
}

// Moves as many bytes as Adam does, in place, and computes almost nothing. This shows the limit
// that memory sets.
[[gnu::target_clones("avx512f", "avx2", "default")]] void touch(const float* __restrict g,
                                                                float* __restrict p,
                                                                float* __restrict m,
                                                                float* __restrict v,
                                                                int64_t numel) {
    for (int64_t i = 0; i < numel; ++i) {
        p[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
    }
}

}  // namespace

extern "C" {

// Each array has [numel] elements. kernels.py has the same struct.
struct BenchArrays {
    int64_t numel;
    float* parameters;
    float* momentum;
    float* variance;
    const float* gradients;
    const uint16_t* half_gradients;  // bf16, in place of gradients; or null
    uint16_t* half_parameters;       // bf16; or null
};

int bench_adamw(const char* name, int threads, const BenchArrays* arrays, float gradient_scale) {
    const std::optional<Isa> isa = isa_named(name);
    if (!isa) return 1;
    const auto numel = static_cast<size_t>(arrays->numel);
    FlatRange whole;
    if (arrays->half_gradients != nullptr) {
        whole.half_gradients = {&arrays->half_gradients, 1};
    } else {
        whole.gradients = {&arrays->gradients, 1};
    }
    whole.gradient_scale = gradient_scale;
    whole.parameters = {arrays->parameters, numel};
    whole.first = {arrays->momentum, numel};
    whole.second = {arrays->variance, numel};
    if (arrays->half_parameters != nullptr)
        whole.half_parameters = {arrays->half_parameters, numel};
    team_of(threads).for_parts(arrays->numel, [&](int64_t begin, int64_t part_numel) {
        FlatRange part = whole;
        part.begin = begin;
        part.numel = part_numel;
        adam_step(part, {.lr = 1e-4, .weight_decay = 1e-2, .step = 3}, *isa);
    });
    return 0;
}

int bench_touch(int threads, const BenchArrays* arrays) {
    team_of(threads).for_parts(arrays->numel, [&](int64_t begin, int64_t numel) {
        touch(arrays->gradients + begin, arrays->parameters + begin, arrays->momentum + begin,
              arrays->variance + begin, numel);
    });
    return 0;
}

const char* bench_best_isa() {
    return isa_name(best_isa()).data();
}
}
