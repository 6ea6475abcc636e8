// A small model trained by ranks as threads through the real trainer, executor, collectives and
// ZeroState, and the same training in one process by torch::optim in fp64: what the ranks
// must come to.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/compute_context.h"
#include "graph/measure.h"
#include "runtime/trainer.h"
#include "support/script_module.h"
#include "support/world.h"
#include "zero/zero_state.h"

namespace dslaunch::testing {

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
    int64_t block_numel = 16;  // far below the real one, so that small parameters are cut
    int64_t persistent_numel_max = 0;
    DType dtype = DType::kF32;
    GatherLimits gather = {};

    [[nodiscard]] int world_size() const {
        int ranks = 0;
        for (const int size : node_sizes) ranks += size;
        return ranks;
    }
};

using Parameters = std::map<std::string, at::Tensor>;

// `extra` is read only by micro batches whose first number is above 0.5; `gain` has one element,
// fewer than there are ranks.
inline const char* const kSmallText =
    "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
    "    h = torch.tanh(torch.matmul(x, self.w1) + self.b1)\n"
    "    if bool(x[0, 0] > 0.5):\n"
    "        h = h + self.extra\n"
    "    h = torch.tanh(torch.matmul(h * self.gain, self.w2))\n"
    "    z = torch.matmul(h, self.w3)\n"
    "    return ((z - y) * (z - y)).mean()\n";

inline at::Tensor wave(std::vector<int64_t> shape, double start) {
    int64_t numel = 1;
    for (const int64_t extent : shape) numel *= extent;
    return (at::arange(numel, at::kDouble) * 3.0 + start).sin().view(shape).to(at::kFloat);
}

inline test::NamedTensors initial_parameters() {
    return {{"w1", wave({7, 20}, 0.1) * 0.5},  {"b1", wave({20}, 0.2) * 0.1},
            {"extra", wave({20}, 0.3)},        {"gain", at::ones({1}) * 0.9},
            {"w2", wave({20, 17}, 0.4) * 0.4}, {"w3", wave({17, 3}, 0.5) * 0.5}};
}

inline std::vector<c10::IValue> small_batch(int64_t micro_batch) {
    return {wave({2, 7}, 1.0 + 31.0 * static_cast<double>(micro_batch)),
            wave({2, 3}, 2.0 + 17.0 * static_cast<double>(micro_batch))};
}

class QuietReporter final : public Reporter {
  public:
    void metrics(std::string_view) override {}
    void run_info(std::string_view) override {}
    void progress(std::string_view) override {}
    void ready() override {}
    void heartbeat(const Heartbeat&) override {}
    void failure(ExitCode, std::string_view) override {}
    [[nodiscard]] bool asked_to_end() const override { return false; }
};

struct RankOutcome {
    Parameters parameters;
    double loss = 0;  // of the last step
    std::optional<double> norm;
    std::map<std::string, int64_t> updates;  // of each parameter
};

// What every rank builds equally.
struct SmallSetup {
    Model model;
    SegmentedModel segmented;
    ModelInfo info;
    FlatLayout layout;
    Partition partition;

    explicit SmallSetup(const TrainingCase& job)
        : model(test::script_model(kSmallText, initial_parameters())),
          segmented(SegmentedModel::make(model, {}, job.segments)),
          info(measure(segmented, small_batch(0))),
          layout(make_flat_layout(info, {job.bucket_numel_max, job.bucket_numel_min, true,
                                         job.persistent_numel_max, job.block_numel})),
          partition(make_partition(layout, info, job.shard, job.world_size())) {}
};

inline RunConfig run_config(const TrainingCase& job) {
    RunConfig config;
    config.steps = job.steps;
    config.optimizer = job.optimizer;
    config.batch.accumulation_steps = job.accumulation;
    return config;
}

inline StepPlanOptions plan_options(const TrainingCase& job, const Topology& topology,
                                    const Partition& partition) {
    StepPlanOptions options;
    options.rank = topology.rank();
    options.world_size = topology.world_size();
    options.local_rank = topology.local_rank;
    options.local_world_size = topology.local_world_size();
    options.accumulation_steps = job.accumulation;
    options.recompute_groups = job.recompute_groups;
    options.clip = job.clipping > 0;
    options.reduce_each_micro_step = job.micro_step;
    options.fused_update = job.fused;
    options.optimizer_states = FlatOptimizerState::states_per_parameter(job.optimizer);
    options.stage = job.stage;
    if (topology.node_count() > 1) options.node_sizes = topology.node_sizes;
    options.parameter_bytes = dtype_bytes(job.dtype);
    options.master = job.dtype != DType::kF32;
    options.partition = &partition;
    options.gather = job.gather;
    return options;
}

// What every rank of a job plans.
struct Planned {
    StepPlanOptions options;
    StepPlan plan;
    ShardMap map;

    Planned(const TrainingCase& job, const SmallSetup& setup, const Topology& topology)
        : options(plan_options(job, topology, setup.partition)),
          plan(make_step_plan(setup.info, setup.layout, options)),
          map(setup.layout, &setup.partition, job.stage, topology) {}

    [[nodiscard]] ZeroPlace place(const SmallSetup& setup) const {
        return {&setup.layout, &setup.partition, &options, &plan, &map};
    }
};

inline RankOutcome train_rank(const TrainingCase& job, const ZeroSlices& slices,
                              InProcessRank& self) {
    SmallSetup setup(job);
    const Topology& topology = self.collectives->topology();
    const RunConfig config = run_config(job);
    const Planned planned(job, setup, topology);
    ZeroState state(setup.model, planned.place(setup), slices, *self.arena, *self.group,
                    *self.collectives, {job.optimizer, job.clipping, job.dtype});
    SegmentRunner runner(
        setup.segmented, setup.info, make_recompute_groups(setup.info, job.recompute_groups),
        [&](int64_t step, int64_t micro_step) {
            return small_batch((step * job.accumulation + micro_step) * topology.world_size() +
                               topology.rank());
        },
        {1, job.accumulation, topology.rank(), topology.world_size()});
    QuietReporter reporter;
    TrainerParts parts;
    parts.config = &config;
    parts.info = &setup.info;
    parts.plan = &planned.plan;
    parts.segments = &runner;
    parts.state = &state;
    parts.collectives = self.collectives.get();
    parts.reporter = &reporter;
    parts.before_step = [] {};
    parts.data_waited = [] { return Duration{}; };
    parts.on_lane_start = [](Lane) {};
    const ComputeContext context(true);
    RankOutcome outcome;
    outcome.loss = Trainer(std::move(parts)).run().loss;
    outcome.norm = state.gradient_norm();
    state.restore_precision(setup.model, /*keep=*/true);
    for (size_t i = 0; i < static_cast<size_t>(setup.layout.trained_slices); ++i) {
        const ModelParameter& parameter =
            setup.model.parameters()[static_cast<size_t>(setup.layout.slices[i].parameter)];
        outcome.parameters[parameter.name] = parameter.tensor.detach().clone();
        outcome.updates[parameter.name] = state.slice_steps()[i];
    }
    self.collectives->barrier();
    return outcome;
}

// Every rank's outcome.
inline std::vector<RankOutcome> train_world(const TrainingCase& job) {
    const SmallSetup setup(job);
    std::vector<ZeroSlices> slices;  // by host
    InProcessWorld world({job.node_sizes, std::chrono::seconds(60)}, [&](ArenaLayout& arena) {
        Topology topology{job.node_sizes, static_cast<int>(slices.size()), 0};
        const Planned planned(job, setup, topology);
        slices.push_back(ZeroState::add_slices(planned.place(setup), job.dtype, arena));
    });
    std::vector<RankOutcome> outcomes(static_cast<size_t>(world.world_size()));
    run_world(world, [&](InProcessRank& self, int rank) {
        const auto node = static_cast<size_t>(self.collectives->topology().node_rank);
        outcomes[static_cast<size_t>(rank)] = train_rank(job, slices[node], self);
    });
    return outcomes;
}

inline std::unique_ptr<torch::optim::Optimizer> reference_optimizer(
    const OptimizerConfig& config, const std::vector<at::Tensor>& parameters) {
    const std::tuple<double, double> betas{config.beta1, config.beta2};
    if (config.kind == OptimizerKind::kSgd) {
        return std::make_unique<torch::optim::SGD>(parameters,
                                                   torch::optim::SGDOptions(config.lr)
                                                       .momentum(config.momentum)
                                                       .dampening(config.dampening)
                                                       .weight_decay(config.weight_decay)
                                                       .nesterov(config.nesterov));
    }
    if (config.kind == OptimizerKind::kAdamW) {
        return std::make_unique<torch::optim::AdamW>(parameters,
                                                     torch::optim::AdamWOptions(config.lr)
                                                         .betas(betas)
                                                         .eps(config.eps)
                                                         .weight_decay(config.weight_decay));
    }
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(config.lr)
                                                                .betas(betas)
                                                                .eps(config.eps)
                                                                .weight_decay(config.weight_decay));
}

// The model written a second time, in ATen, fp64.
inline at::Tensor reference_loss(const Parameters& p, int64_t micro_batch) {
    const std::vector<c10::IValue> batch = small_batch(micro_batch);
    const at::Tensor x = batch[0].toTensor().to(at::kDouble),
                     y = batch[1].toTensor().to(at::kDouble);
    at::Tensor h = at::tanh(at::matmul(x, p.at("w1")) + p.at("b1"));
    if (x[0][0].item<double>() > 0.5) h = h + p.at("extra");
    const at::Tensor z = at::matmul(at::tanh(at::matmul(h * p.at("gain"), p.at("w2"))), p.at("w3"));
    return (z - y).square().mean();
}

// The mean gradient of all micro batches of a step, then one update: what any split over ranks must
// equal.
inline RankOutcome train_reference(const TrainingCase& job) {
    // Threads of matrices this small only wait for each other.
    at::set_num_threads(1);
    Parameters parameters;
    std::vector<at::Tensor> list;
    for (const auto& [name, tensor] : initial_parameters()) {
        parameters[name] = tensor.to(at::kDouble).set_requires_grad(true);
        list.push_back(parameters[name]);
    }
    const auto optimizer = reference_optimizer(job.optimizer, list);
    const int64_t micro_batches = job.accumulation * job.world_size();
    RankOutcome outcome;
    for (int64_t step = 0; step < job.steps; ++step) {
        optimizer->zero_grad(/*set_to_none=*/true);
        outcome.loss = 0;
        for (int64_t m = 0; m < micro_batches; ++m) {
            const at::Tensor loss = reference_loss(parameters, step * micro_batches + m);
            outcome.loss += loss.item<double>() / static_cast<double>(micro_batches);
            (loss / static_cast<double>(micro_batches)).backward();
        }
        for (const auto& [name, tensor] : parameters)
            outcome.updates[name] += tensor.grad().defined() ? 1 : 0;
        if (job.clipping > 0) {
            std::vector<at::Tensor> with_gradient;
            for (const at::Tensor& tensor : list)
                if (tensor.grad().defined()) with_gradient.push_back(tensor);
            outcome.norm = torch::nn::utils::clip_grad_norm_(with_gradient, job.clipping);
        }
        optimizer->step();
    }
    for (const auto& [name, tensor] : parameters) outcome.parameters[name] = tensor.detach();
    return outcome;
}

}  // namespace dslaunch::testing
