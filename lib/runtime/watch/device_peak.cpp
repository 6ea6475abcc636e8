#include "runtime/watch/device_peak.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "graph/archive/scalar_types.h"

namespace dslaunch::runtime {

DevicePeak measure_cpu_peak(DType compute) {
    constexpr int64_t kSide = 512;
    constexpr double kFlops = 2.0 * kSide * kSide * kSide;
    constexpr auto kTime = std::chrono::milliseconds(25);
    constexpr int kRoundsMin = 3;
    const at::NoGradGuard no_grad;
    const at::Tensor factor =
        at::full({kSide, kSide}, 0.5, at::TensorOptions().dtype(graph::scalar_type_of(compute)));
    const SystemClock clock;
    const TimePoint begin = clock.now();
    double best_s = 0;
    for (int round = 0; round < kRoundsMin || clock.now() - begin < kTime; ++round) {
        const TimePoint before = clock.now();
        static_cast<void>(at::mm(factor, factor));
        const double seconds = to_milliseconds(clock.now() - before) / 1e3;
        if (round > 0) best_s = best_s > 0 ? std::min(best_s, seconds) : seconds;
    }
    return {best_s > 0 ? kFlops / best_s / 1e12 : 0, "measured"};
}

}  // namespace dslaunch::runtime
