// The job of a test: a model (by default a small one), the job's settings, and the parts that every
// rank builds.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "forced_placement.h"
#include "graph/archive/scalar_types.h"
#include "graph/lower/device_rewrite.h"
#include "graph/measure/measure.h"
#include "runtime/save/checkpointer.h"
#include "support/script_module.h"
#include "zero/zero_state.h"

namespace dslaunch::testing {

using namespace config;
using namespace graph;
using namespace plan;
using namespace storage;

using Parameters = std::map<std::string, at::Tensor>;

// Only micro batches whose first number is above 0.5 read `extra`. `gain` has one element, fewer
// than there are ranks.
inline const char* const kSmallText =
    "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
    "    h = torch.tanh(torch.matmul(x, self.w1) + self.b1)\n"
    "    if bool(x[0, 0] > 0.5):\n"
    "        h = h + self.extra\n"
    "    h = torch.tanh(torch.matmul(h * self.gain, self.w2))\n"
    "    z = torch.matmul(h, self.w3)\n"
    "    return ((z - y) * (z - y)).mean()\n";

using test::wave;

inline test::NamedTensors initial_parameters() {
    return {{"w1", wave({7, 20}, 0.1) * 0.5},  {"b1", wave({20}, 0.2) * 0.1},
            {"extra", wave({20}, 0.3)},        {"gain", at::ones({1}) * 0.9},
            {"w2", wave({20, 17}, 0.4) * 0.4}, {"w3", wave({17, 3}, 0.5) * 0.5}};
}

inline std::vector<c10::IValue> small_batch(int64_t micro_batch) {
    return {wave({2, 7}, 1.0 + 31.0 * static_cast<double>(micro_batch)),
            wave({2, 3}, 2.0 + 17.0 * static_cast<double>(micro_batch))};
}

// The training data of a job: a model, the options of its graph, and its micro batches by number.
// Micro step a of A in step s has the number (s * A + a) * ranks + rank.
struct TrainedModel {
    Model model;
    LowerOptions lower;
    std::function<std::vector<c10::IValue>(const SegmentedModel&, int64_t micro_batch)> batch;
};

inline TrainedModel small_model() {
    return {test::script_model(kSmallText, initial_parameters()),
            {},
            [](const SegmentedModel&, int64_t micro_batch) { return small_batch(micro_batch); }};
}

struct TrainingCase {
    std::string name;
    std::vector<int> node_sizes = {1};
    OptimizerConfig optimizer = {};
    int64_t accumulation = 1;
    double clipping = 0;
    bool micro_step = false;  // communication.reduce
    bool fused = false;
    int64_t bucket_numel_max = 1 << 20;
    int64_t bucket_numel_min = 1;
    int64_t segments = 3;
    int64_t recompute_groups = 0;
    int64_t steps = 6;
    int stage = 0;
    ShardBy shard = ShardBy::kFlat;
    int shard_group = 0;       // used from stage 1 on
    int64_t block_numel = 16;  // far below the default, so that small parameters are cut
    int64_t persistent_numel_max = 0;
    PrecisionConfig precision = {};
    GatherLimits gather = {};
    std::function<TrainedModel()> make_model = small_model;
    bool losses_late = false;  // SegmentRunnerOptions::read_losses_late
    OffloadPlan offload = {};
    HostWire wire = {};
    LaggingConfig lagging = {};
    int64_t unit_numel = 4;                         // LagPlan::unit_numel
    std::vector<std::string> exact_gradients = {};  // names; ParameterInfo::exact_gradient
    bool adds_ranks = false;                        // ZeroOptions::adds_ranks
    KeptAfter kept_after = {};
    FileTree* tree = nullptr;           // null: nothing is saved or resumed
    std::vector<FileTree*> trees = {};  // one per host, if hosts share none
    std::string root = {};              // folder of the checkpoints
    SaveConfig save = {};
    std::string resume_from = {};  // step folder
    UpdateRules rules = {};        // ZeroOptions::rules
    // Called by each rank after each step, before the next one begins.
    std::function<void(int64_t step, runtime::ParameterState&, runtime::Collectives&)> after_step =
        {};
    bool save_untrained = false;  // true: saves the resumed state at once, even if no step is left

    [[nodiscard]] int world_size() const {
        int ranks = 0;
        for (const int size : node_sizes) ranks += size;
        return ranks;
    }
    [[nodiscard]] int used_shard_group() const { return stage > 0 ? shard_group : 0; }
    [[nodiscard]] int shard_ranks() const {
        return used_shard_group() > 0 ? shard_group : world_size();
    }
};

// The parts that are built in the same way on every rank.
struct TrainingSetup {
    TrainedModel trained;
    SegmentedModel segmented;
    ModelInfo info;
    FlatLayout layout;
    Partition partition;

    explicit TrainingSetup(const TrainingCase& job)
        : trained(lowered_for(job)),
          segmented(SegmentedModel::make(trained.model, trained.lower, job.segments)),
          info(marked(measure(segmented, on_device(batch(0), trained.lower.device)), job)),
          layout(make_flat_layout(info, {job.bucket_numel_max, job.bucket_numel_min, true,
                                         job.persistent_numel_max, job.block_numel})),
          partition(make_partition(layout, info, job.shard, job.shard_ranks())) {}

    [[nodiscard]] std::vector<c10::IValue> batch(int64_t micro_batch) const {
        return trained.batch(segmented, micro_batch);
    }
    [[nodiscard]] Model& model() { return trained.model; }

  private:
    static TrainedModel lowered_for(const TrainingCase& job) {
        TrainedModel trained = job.make_model();
        trained.lower.compute_dtype = scalar_type_of(job.precision.compute);
        trained.lower.keeps_fp32_parameters = job.precision.fp32_weights;
        return trained;
    }
    static ModelInfo marked(ModelInfo info, const TrainingCase& job) {
        for (ParameterInfo& parameter : info.parameters)
            parameter.exact_gradient = std::ranges::count(job.exact_gradients, parameter.name) > 0;
        return info;
    }
};

}  // namespace dslaunch::testing
