// A world of ranks that are threads. Each rank trains on a test device of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device_rank.h"
#include "support/device/test_backend.h"
#include "support/device/test_device.h"
#include "support/text_tools.h"
#include "support/world.h"

namespace dslaunch::testing {

using test::TestBackend;
using test::TestBackendWorld;

struct DeviceRank {
    RankOutcome outcome;
    std::vector<std::string> calls;
};

struct DeviceWorldOptions {
    bool usage_varies = true;
    std::function<void(TestBackend&)> prepare = [](TestBackend&) {};
    Duration operator_delay = std::chrono::microseconds(20);
};

inline std::vector<DeviceRank> train_devices(const TrainingCase& job,
                                             const DeviceWorldOptions& options = {}) {
    TestBackendWorld devices;
    InProcessWorld world({job.node_sizes, std::chrono::seconds(60)}, [](ArenaLayout&) {});
    std::vector<DeviceRank> ranks(static_cast<size_t>(job.world_size()));
    run_world(world, [&](InProcessRank& self, int rank) {
        const auto seed = static_cast<uint64_t>(rank);
        test::TestDevice device(rank, seed + 100, options.operator_delay);
        TestBackend backend(devices, seed, rank, &device.compute());
        options.prepare(backend);
        RankOutcome outcome =
            train_device_rank(on_device(job, device.device()), options.usage_varies, backend,
                              device.device(), *self.collectives);
        ranks[rank] = {std::move(outcome), backend.calls()};
    });
    return ranks;
}

// Returns a function that makes the small model with the batches that BATCH makes.
inline std::function<TrainedModel()> small_model_on(
    const std::function<std::vector<c10::IValue>(int64_t)>& batch) {
    return [batch] {
        TrainedModel trained = small_model();
        trained.batch = [batch](const SegmentedModel&, int64_t micro_batch) {
            return batch(micro_batch);
        };
        return trained;
    };
}

inline std::string failure_of(const TrainingCase& job, const DeviceWorldOptions& options,
                              ExitCode code) {
    return test::error_of(code, [&] { (void)train_devices(job, options); });
}

}  // namespace dslaunch::testing
