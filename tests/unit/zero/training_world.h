// Trains a model with ranks that are threads, through the real trainer, executor, collectives and
// ZeroState. The default is a small model, which training_reference.h trains in another way.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bring_weights.h"
#include "device/host_device.h"
#include "forced_placement.h"
#include "graph/archive/scalar_types.h"
#include "graph/lower/device_rewrite.h"
#include "graph/measure/measure.h"
#include "graph/segment/compute_context.h"
#include "offload_files.h"
#include "plan/step/recompute_groups.h"
#include "runtime/train/trainer.h"
#include "saving_world.h"
#include "support/metrics_keeper.h"
#include "support/script_module.h"
#include "support/world.h"
#include "training_case.h"
#include "unit/zero/plans_by_kind.h"
#include "zero/zero_state.h"

namespace dslaunch::testing {

using namespace config;
using namespace graph;
using namespace plan;
using namespace runtime;
using namespace storage;
using namespace zero;

struct RankOutcome {
    Parameters parameters;  // all parameters of the model
    Parameters buffers;
    double loss = 0;  // loss of the last step
    std::optional<double> norm;
    std::vector<nlohmann::json> metrics;             // metrics of rank 0
    std::vector<std::optional<Overflow>> overflows;  // by step
    std::map<std::string, int64_t> updates;          // updates of each parameter
    Bytes moments;                                   // optimizer states of this rank

    // Returns the loss of each step, NaN if it is not finite. REQUIRES: this is rank 0's outcome.
    [[nodiscard]] std::vector<double> losses() const {
        std::vector<double> values;
        for (const nlohmann::json& line : metrics)
            values.push_back(line.at("loss").is_null() ? NAN : line.at("loss").get<double>());
        return values;
    }
};

inline bool equal_bits(const RankOutcome& a, const RankOutcome& b) {
    for (const auto& [name, tensor] : a.parameters)
        if (!at::equal(tensor, b.parameters.at(name))) return false;
    return a.loss == b.loss && a.updates == b.updates && a.norm == b.norm;
}

inline RunConfig run_config(const TrainingCase& job) {
    RunConfig config;
    config.steps = job.steps;
    config.optimizer = job.optimizer;
    config.batch.accumulation_steps = job.accumulation;
    config.precision = job.precision;
    config.save = job.save;
    config.batch.train_rows = job.accumulation * job.world_size();
    return config;
}

inline StepPlanOptions plan_options(const TrainingCase& job, const Topology& topology,
                                    const Partition& partition, const StageWork& work) {
    StepPlanOptions options;
    options.stage_work = work;
    options.rank = topology.rank();
    options.world_size = topology.world_size();
    options.local_rank = topology.local_rank;
    options.local_world_size = topology.local_world_size();
    options.accumulation_steps = job.accumulation;
    options.recompute_groups = job.recompute_groups;
    options.clip = job.clipping > 0;
    options.reduce_each_micro_step = job.micro_step;
    options.fused_update = job.fused && topology.node_count() == 1;
    options.optimizer_states = ShardOptimizer::states_per_parameter(job.optimizer);
    options.stage = job.stage;
    options.whole_tensors = job.optimizer.needs_whole_tensors();
    options.shard_group = job.used_shard_group();
    if (topology.node_count() > 1) options.node_sizes = topology.node_sizes;
    options.parameter_bytes = dtype_bytes(job.precision.weights());
    options.master = job.precision.weights() != DType::kF32;
    options.check_overflow = job.precision.skip_nonfinite_steps;
    options.partition = &partition;
    options.gather = job.gather;
    options.offload = job.offload;
    options.compression = ExchangeSchedule::room(job.optimizer, topology.node_count());
    options.wire = job.wire;
    options.lag = lag_of(job.lagging, 1);
    options.lag.unit_numel = job.unit_numel;
    return options;
}

// The plan that every rank of a job makes.
struct Planned {
    StepPlanOptions options;
    StepPlan plan;
    ShardMap map;
    std::shared_ptr<device::HostDevice> host = std::make_shared<device::HostDevice>();

    Planned(const TrainingCase& job, const TrainingSetup& setup, const Topology& topology,
            const StageWork& work = {})
        : options(plan_options(job, topology, setup.partition, work)),
          plan(make_step_plan(setup.info, setup.layout, options)),
          map(setup.layout, &setup.partition, job.stage, topology, job.offload.parameters,
              job.used_shard_group(), options.whole_tensors) {}

    [[nodiscard]] ZeroPlace place(const TrainingSetup& setup) const {
        return {&setup.layout, &setup.partition, &options, &plan, &map, {host.get(), at::kCPU}};
    }
};

// A rank's place in a pipeline.
struct TrainPlace {
    const Topology* ranks = nullptr;  // ranks of the stage
    StageParts stage = {};
    StageWork work = {};
    int position_ranks = 1;  // number of neighbouring ranks that share positions
    std::vector<Collectives*> groups = {};
};

// Keeps each step's overflow. FORCED and EXCHANGES change plans, unless they are null.
class StepKeeper final : public BetweenSteps {
  public:
    StepKeeper(const SteppingState& state, ForcedPlacement* forced, PlansByKind* exchanges)
        : state_(state), forced_(forced), exchanges_(exchanges) {}

    [[nodiscard]] const StepPlan* before_step(int64_t update) override {
        if (steps_begun_++ > 0) overflows.push_back(state_.overflow());
        return exchanges_ == nullptr ? nullptr : exchanges_->before(update);
    }
    [[nodiscard]] const StepPlan* after_step(const StepRun& run) override {
        return forced_ == nullptr ? nullptr : forced_->after(run);
    }

    void end_step(int64_t step, double /*loss*/, bool /*skipped*/) override {
        if (look) look(step);
    }

    std::vector<std::optional<Overflow>> overflows;  // by step, without the last one
    std::function<void(int64_t step)> look;          // called after each step

  private:
    const SteppingState& state_;
    ForcedPlacement* forced_;
    PlansByKind* exchanges_;
    int64_t steps_begun_ = 0;
};

// Trains with STATE by PLAN. Collects all results except the tensors.
inline RankOutcome train_with(const TrainingCase& job, const TrainingSetup& setup,
                              const StepPlan& plan, ParameterState& state, Collectives& collectives,
                              ForcedPlacement* forced = nullptr,
                              Checkpointer* checkpointer = nullptr,
                              const TrainingState& resumed = {}, const TrainPlace* place = nullptr,
                              DeviceBackend* backend = nullptr, Collectives* of_devices = nullptr,
                              PlansByKind* exchanges = nullptr) {
    const Topology& topology = place != nullptr ? *place->ranks : collectives.topology();
    const int position_ranks = place != nullptr ? place->position_ranks : 1;
    const int data_rank = topology.rank() / position_ranks;
    const int data_ranks = topology.world_size() / position_ranks;
    const RunConfig config = run_config(job);
    const c10::Device device = setup.trained.lower.device;
    SegmentRunner runner(
        setup.segmented, setup.info,
        make_recompute_groups(setup.info, job.recompute_groups,
                              place != nullptr ? place->work.parts : std::vector<StagePart>{}),
        [&](int64_t step, int64_t micro_step) {
            return setup.batch((step * job.accumulation + micro_step) * data_ranks + data_rank);
        },
        {1, job.accumulation, data_rank, data_ranks, device,
         /*read_losses_late=*/job.losses_late,
         /*stop_on_nonfinite_loss=*/!job.precision.skip_nonfinite_steps,
         place != nullptr ? place->work : StageWork{}, position_ranks});
    RankOutcome outcome;
    MetricsKeeper reporter;
    StepKeeper keeper(state, forced, exchanges);
    if (job.after_step)
        keeper.look = [&](int64_t step) { job.after_step(step, state, collectives); };
    TrainerParts parts;
    parts.config = &config;
    parts.steps.info = &setup.info;
    parts.steps.plan = &plan;
    parts.steps.segments = &runner;
    parts.steps.state = &state;
    parts.account = &state;
    parts.steps.collectives = &collectives;
    parts.steps.device = backend;
    if (of_devices != nullptr) parts.steps.groups.push_back(of_devices);
    if (place != nullptr) {
        parts.steps.stage = place->stage;
        parts.steps.groups = place->groups;
    }
    parts.reporter = &reporter;
    parts.between = &keeper;
    parts.checkpointer = checkpointer;
    parts.resumed = resumed;
    const ComputeContext context(true, scalar_type_of(job.precision.compute), device.type());
    outcome.loss = Trainer(std::move(parts)).run().loss;
    outcome.overflows = std::move(keeper.overflows);
    outcome.overflows.push_back(state.overflow());
    outcome.norm = state.gradient_norm();
    outcome.metrics = std::move(reporter.lines);
    return outcome;
}

inline void collect_tensors(TrainingSetup& setup, const ZeroState& state, RankOutcome& outcome) {
    move_to_device(setup.model(), c10::kCPU);
    for (const ModelParameter& parameter : setup.model().parameters())
        outcome.parameters[parameter.name] = parameter.tensor.detach().clone();
    for (const ModelBuffer& buffer : setup.model().buffers())
        outcome.buffers[buffer.name] = buffer.tensor.clone();
    for (size_t i = 0; i < static_cast<size_t>(setup.layout.trained_slices); ++i) {
        const int parameter = setup.layout.slices[i].parameter;
        outcome.updates[setup.model().parameters()[static_cast<size_t>(parameter)].name] =
            state.updates_of(parameter).value();
    }
}

inline RankOutcome train_rank(const TrainingCase& job, const ZeroSlices& slices,
                              InProcessRank& self) {
    TrainingSetup setup(job);
    Resumed resumed(job, setup, self.collectives->topology());
    const Planned planned(job, setup, self.collectives->topology());
    const std::unique_ptr<OffloadFile> offload =
        offload_file(planned.plan, planned.options.chunk_format());
    ZeroState state(
        setup.model(), planned.place(setup), slices, *self.arena, *self.group, *self.collectives,
        {job.optimizer, job.clipping, job.precision.weights(), job.precision.skip_nonfinite_steps,
         resumed.saved ? &*resumed.saved : nullptr,
         /*pipeline=*/{}, /*tensor=*/nullptr, /*usage_varies=*/true, job.rules, job.adds_ranks},
        offload.get());
    const auto checkpointer = checkpointer_for(job, setup, state, *self.collectives);
    if (job.save_untrained) {
        checkpointer->begin(resumed.training);
        checkpointer->finish();
    }
    ForcedPlacement forced(job.kept_after, setup.info, setup.layout, planned.options);
    PlansByKind exchanges({job.optimizer, job.lagging, setup.info, setup.layout, planned.options,
                           planned.plan, job.fused});
    RankOutcome outcome =
        train_with(job, setup, planned.plan, state, *self.collectives, &forced, checkpointer.get(),
                   resumed.training, nullptr, nullptr, nullptr, &exchanges);
    bring_into_model(state, setup.model());
    collect_tensors(setup, state, outcome);
    outcome.moments = state.memory().moments;
    self.collectives->barrier();
    return outcome;
}

// Returns the outcome of every rank.
inline std::vector<RankOutcome> train_world(const TrainingCase& job) {
    const TrainingSetup setup(job);
    std::vector<ZeroSlices> slices;  // by host
    InProcessWorld world({job.node_sizes, std::chrono::seconds(60)}, [&](ArenaLayout& arena) {
        Topology topology{job.node_sizes, static_cast<int>(slices.size()), 0};
        const Planned planned(job, setup, topology);
        slices.push_back(
            ZeroState::add_slices(planned.place(setup), job.precision.weights(), arena));
    });
    std::vector<RankOutcome> outcomes(static_cast<size_t>(world.world_size()));
    run_world(world, [&](InProcessRank& self, int rank) {
        const auto node = static_cast<size_t>(self.collectives->topology().node_rank);
        outcomes[rank] = train_rank(job, slices[node], self);
    });
    return outcomes;
}

}  // namespace dslaunch::testing
