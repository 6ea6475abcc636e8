// Stands in for lib/kernels while it has no sources; CMake leaves it out as soon as it has.
#include "kernels/flat_optimizer.h"

namespace dslaunch {

Isa best_isa() {
    return Isa::kScalar;
}

void ordered_sum(std::span<const float* const> sources, float scale, float* out, int64_t numel,
                 Isa) {
    for (int64_t i = 0; i < numel; ++i) {
        float sum = sources[0][i];
        for (size_t s = 1; s < sources.size(); ++s) sum += sources[s][i];
        out[i] = sum * scale;
    }
}

}  // namespace dslaunch
