// Stage 0 by streams and marks, over a backend that carries a collective out no earlier than
// somebody waits for it: against torch::optim, and bit for bit against ReplicatedState.
#include "zero/device_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/device_rewrite.h"
#include "launch/gpu_count.h"
#include "plan/device_plan.h"
#include "support/catch.h"
#include "support/fake_device.h"
#include "support/fixtures.h"
#include "support/skip.h"
#include "training_world.h"

namespace dslaunch {
namespace {

using test::FakeDevice;
using test::FakeDeviceWorld;
using testing::RankOutcome;
using testing::TrainingCase;

class LossReporter final : public Reporter {
  public:
    void metrics(std::string_view line) override {
        losses.push_back(nlohmann::json::parse(line).at("loss").get<double>());
    }
    void run_info(std::string_view) override {}
    void progress(std::string_view) override {}
    void ready() override {}
    void failure(ExitCode, std::string_view) override {}
    [[nodiscard]] bool asked_to_end() const override { return false; }
    std::vector<double> losses;
};

struct DeviceRank {
    RankOutcome outcome;
    std::vector<std::string> calls;
};

struct DeviceWorldOptions {
    bool usage_varies = true;
    std::function<void(FakeDevice&)> prepare = [](FakeDevice&) {};
    std::function<std::vector<c10::IValue>(int64_t)> batch = testing::small_batch;
};

DeviceRank train_device_rank(const TrainingCase& job, const DeviceWorldOptions& options,
                             FakeDevice& device, InProcessRank& self) {
    testing::SmallSetup setup(job);
    const Topology& topology = self.collectives->topology();
    const RunConfig config = testing::run_config(job);
    const StepPlan plan = make_device_plan(
        make_step_plan(setup.info, setup.layout, testing::plan_options(job, topology)));
    DeviceState state(setup.model, setup.layout, device, *self.collectives,
                      {job.optimizer, job.clipping, job.micro_step && job.accumulation > 1,
                       options.usage_varies});
    SegmentRunnerOptions runner_options{1, job.accumulation, topology.rank(),
                                        topology.world_size()};
    runner_options.read_losses_late = true;
    SegmentRunner runner(
        setup.segmented, setup.info, make_recompute_groups(setup.info, job.recompute_groups),
        [&](int64_t step, int64_t micro_step) {
            return options.batch((step * job.accumulation + micro_step) * topology.world_size() +
                                 topology.rank());
        },
        runner_options);
    testing::QuietReporter reporter;
    TrainerParts parts;
    parts.config = &config;
    parts.info = &setup.info;
    parts.plan = &plan;
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
    for (size_t i = 0; i < setup.layout.slices.size(); ++i) {
        const ModelParameter& parameter =
            setup.model.parameters()[static_cast<size_t>(setup.layout.slices[i].parameter)];
        outcome.parameters[parameter.name] = parameter.tensor.detach().clone();
        outcome.updates[parameter.name] = state.slice_steps()[i];
    }
    self.collectives->barrier();
    return {outcome, device.calls()};
}

std::vector<DeviceRank> train_devices(const TrainingCase& job,
                                      const DeviceWorldOptions& options = {}) {
    FakeDeviceWorld devices(job.world_size());
    InProcessWorld world({job.node_sizes, std::chrono::seconds(60)}, [](ArenaLayout&) {});
    std::vector<DeviceRank> ranks(static_cast<size_t>(job.world_size()));
    testing::run_world(world, [&](InProcessRank& self, int rank) {
        FakeDevice device(devices);
        options.prepare(device);
        ranks[static_cast<size_t>(rank)] = train_device_rank(job, options, device, self);
    });
    return ranks;
}

OptimizerConfig optimizer(OptimizerKind kind, double weight_decay) {
    OptimizerConfig config;
    config.kind = kind;
    config.lr = kind == OptimizerKind::kSgd ? 0.1 : 0.01;
    config.weight_decay = weight_decay;
    return config;
}

OptimizerConfig momentum_sgd(double momentum, double dampening, bool nesterov) {
    OptimizerConfig config = optimizer(OptimizerKind::kSgd, 0.02);
    config.momentum = momentum;
    config.dampening = dampening;
    config.nesterov = nesterov;
    return config;
}

const OptimizerConfig kAdamW = optimizer(OptimizerKind::kAdamW, 0.1);
const OptimizerConfig kAdamL2 = optimizer(OptimizerKind::kAdam, 0.1);

void check_equal_bits(const RankOutcome& a, const RankOutcome& b) {
    CHECK(a.loss == b.loss);
    CHECK(a.updates == b.updates);
    for (const auto& [name, tensor] : a.parameters) {
        INFO(name);
        CHECK(at::equal(tensor, b.parameters.at(name)));
    }
}

// The bound that replicated_state_test.cpp derives for fp32 ranks against the fp64 reference.
constexpr double kTolerance = 2e-5;

void check_against_reference(const TrainingCase& job) {
    INFO(job.name << " on " << job.world_size() << " ranks");
    const std::vector<DeviceRank> ranks = train_devices(job);
    const RankOutcome reference = testing::train_reference(job);
    const RankOutcome& first = ranks[0].outcome;
    for (const DeviceRank& rank : ranks) check_equal_bits(rank.outcome, first);
    CHECK(std::abs(first.loss - reference.loss) < kTolerance);
    CHECK(first.updates == reference.updates);
    CHECK(first.norm.has_value() == reference.norm.has_value());
    if (reference.norm) CHECK(*first.norm == Approx(*reference.norm).epsilon(1e-4));
    for (const auto& [name, tensor] : reference.parameters) {
        INFO(name);
        const double error =
            (first.parameters.at(name).to(at::kDouble) - tensor).abs().max().item<double>();
        CHECK(error < kTolerance);
    }
}

struct FixtureRun {
    std::vector<double> losses;
    std::vector<at::Tensor> parameters;
};

RunConfig fixture_config(const test::Fixture& fixture, int64_t steps) {
    RunConfig config;
    config.steps = steps;
    config.loss = fixture.options.loss;
    config.optimizer = optimizer(OptimizerKind::kAdamW, 0.1);
    return config;
}

// Where a rank trains: in the host's arena, or by BACKEND on DEVICE.
struct Place {
    DeviceBackend* backend = nullptr;
    c10::Device device = c10::kCPU;
    ReplicatedSlices slices;
};

// Three steps of a fixture by this rank.
FixtureRun train_fixture_rank(const std::string& name, InProcessRank& self, const Place& place) {
    test::Fixture fixture = test::Fixture::load(name);
    move_to_device(fixture.model, place.device);
    fixture.options.device = place.device;
    const SegmentedModel cut = fixture.cut(3);
    const ModelInfo info = measure(cut, on_device(fixture.batch(cut), place.device));
    const FlatLayout layout = make_flat_layout(info, {1 << 20, 1 << 10});
    const Topology& topology = self.collectives->topology();
    const RunConfig config = fixture_config(fixture, 3);
    StepPlan plan =
        make_step_plan(info, layout, testing::plan_options({name, {}, config.optimizer}, topology));
    std::unique_ptr<ParameterState> state;
    if (place.backend != nullptr) {
        plan = make_device_plan(std::move(plan));
        state = std::make_unique<DeviceState>(
            fixture.model, layout, *place.backend, *self.collectives,
            DeviceStateOptions{config.optimizer, 0, false, has_control_flow(cut.lowered())});
    } else {
        state = std::make_unique<ReplicatedState>(fixture.model, layout, place.slices, *self.arena,
                                                  *self.group, *self.collectives,
                                                  ReplicatedOptions{config.optimizer});
    }
    SegmentRunnerOptions options{1, 1, topology.rank(), topology.world_size()};
    options.device = place.device;
    options.read_losses_late = place.backend != nullptr;
    SegmentRunner runner(
        cut, info, {},
        [&](int64_t step, int64_t) {
            return fixture.batch(cut, step * topology.world_size() + topology.rank());
        },
        options);
    LossReporter reporter;
    TrainerParts parts;
    parts.config = &config;
    parts.info = &info;
    parts.plan = &plan;
    parts.segments = &runner;
    parts.state = state.get();
    parts.collectives = self.collectives.get();
    parts.reporter = &reporter;
    parts.before_step = [] {};
    parts.data_waited = [] { return Duration{}; };
    parts.on_lane_start = [](Lane) {};
    const ComputeContext context(true);
    (void)Trainer(std::move(parts)).run();
    move_to_device(fixture.model, c10::kCPU);
    FixtureRun run{reporter.losses, {}};
    for (const ModelParameter& parameter : fixture.model.parameters())
        run.parameters.push_back(parameter.tensor.detach().clone());
    self.collectives->barrier();
    return run;
}

// Rank 0's run.
FixtureRun train_fixture(const std::string& name, int world_size, bool on_device) {
    test::Fixture fixture = test::Fixture::load(name);
    const SegmentedModel cut = fixture.cut(3);
    const FlatLayout layout =
        make_flat_layout(measure(cut, fixture.batch(cut)), {1 << 20, 1 << 10});
    FakeDeviceWorld devices(world_size);
    ReplicatedSlices slices;
    InProcessWorld world({{world_size}, std::chrono::seconds(60)}, [&](ArenaLayout& arena) {
        if (!on_device) slices = ReplicatedState::add_slices(layout, arena);
    });
    FixtureRun first;
    testing::run_world(world, [&](InProcessRank& self, int rank) {
        FakeDevice device(devices);
        FixtureRun run =
            train_fixture_rank(name, self, {on_device ? &device : nullptr, c10::kCPU, slices});
        if (rank == 0) first = std::move(run);
    });
    return first;
}

// One rank on a real GPU.
FixtureRun train_fixture_on_gpu(const std::string& name, DeviceBackend& backend) {
    InProcessWorld world({{1}, std::chrono::seconds(60)}, [](ArenaLayout&) {});
    FixtureRun run;
    testing::run_world(world, [&](InProcessRank& self, int) {
        run = train_fixture_rank(name, self, {&backend, c10::Device(c10::kCUDA, 0), {}});
    });
    return run;
}

std::string failure_of(const TrainingCase& job, const DeviceWorldOptions& options, ExitCode code) {
    try {
        (void)train_devices(job, options);
    } catch (const Error& error) {
        CHECK(error.code() == code);
        return error.what();
    }
    return "it ran";
}

}  // namespace

TEST_CASE("every fixture trains on a device with the bits of the CPU's state") {
    at::set_num_threads(1);
    for (const std::string& name : test::fixture_names())
        for (const int world_size : {1, 2}) {
            INFO(name << " on " << world_size << " ranks");
            const FixtureRun here = train_fixture(name, world_size, false);
            const FixtureRun there = train_fixture(name, world_size, true);
            REQUIRE(here.losses.size() == 3);
            CHECK(there.losses == here.losses);
            for (size_t i = 0; i < here.parameters.size(); ++i)
                CHECK(at::equal(there.parameters[i], here.parameters[i]));
        }
}

// Products on a GPU add up in another order: 1e-3 of a loss after three steps is far above that and
// far below a wrong gradient. Dropout draws other numbers there.
TEST_CASE("every fixture without dropout trains on a GPU to the losses of the CPU") {
    if (count_gpus() == 0) {
        test::report_skipped("training the fixtures on a GPU", "this machine has no GPU");
        return;
    }
    const DeviceBackendPtr backend =
        open_device_backend(std::string(DSL_BINARY_DIR) + "/libdsl_cuda.so", 0);
    for (const std::string& name : test::fixture_names()) {
        if (name.find("dropout") != std::string::npos) continue;
        INFO(name);
        const FixtureRun here = train_fixture(name, 1, false);
        const FixtureRun there = train_fixture_on_gpu(name, *backend);
        REQUIRE(there.losses.size() == here.losses.size());
        for (size_t step = 0; step < here.losses.size(); ++step)
            CHECK(there.losses[step] == Approx(here.losses[step]).epsilon(1e-3));
    }
}

TEST_CASE("every rank on a device comes to the parameters of torch::optim") {
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {3}, {5}, {8}, {2, 1}}) {
        for (const OptimizerConfig& config :
             {kAdamW, kAdamL2, optimizer(OptimizerKind::kSgd, 0.02), momentum_sgd(0.9, 0.3, false),
              momentum_sgd(0.8, 0, true)}) {
            for (const double clipping : {0.0, 0.05}) {
                TrainingCase job{
                    fmt::format("optimizer {} momentum {} clipping {}",
                                static_cast<int>(config.kind), config.momentum, clipping),
                    sizes, config, 2, clipping};
                check_against_reference(job);
                job.micro_step = true;
                job.name += ", reduced each micro step";
                check_against_reference(job);
            }
        }
    }
}

TEST_CASE("without clipping a device's ranks have the bits of ReplicatedState") {
    for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {3}, {8}})
        for (const bool micro_step : {false, true}) {
            TrainingCase job{"bits", sizes, kAdamL2, 2, 0, micro_step};
            job.bucket_numel_max = 200;
            INFO(job.world_size() << " ranks, micro_step " << micro_step);
            check_equal_bits(train_devices(job)[0].outcome, testing::train_world(job)[0]);
        }
}

TEST_CASE("an Adam without bias correction is the CPU's too") {
    OptimizerConfig config = kAdamW;
    config.bias_correction = false;
    const TrainingCase job{"no correction", {2}, config};
    check_equal_bits(train_devices(job)[0].outcome, testing::train_world(job)[0]);
}

TEST_CASE("each bucket is reduced once behind its own mark, and updated once it is waited for") {
    TrainingCase job{"order", {2}, kAdamW};
    job.steps = 1;
    const std::vector<std::string> calls = train_devices(job)[0].calls;
    const auto count = [&](const char* name) {
        return std::count(calls.begin(), calls.end(), name);
    };
    const auto buckets = count("all_reduce");
    CHECK(buckets > 1);
    // One mark before the broadcast of the parameters.
    CHECK(count("mark") == buckets + 1);
    CHECK(count("adam") >= buckets - 1);  // `extra` is not used by every batch
    CHECK(count("finish") == 1);
    const auto first = [&](const char* name) {
        return std::find(calls.begin(), calls.end(), name) - calls.begin();
    };
    const auto last = [&](const char* name) {
        return calls.rend() - std::find(calls.rbegin(), calls.rend(), name) - 1;
    };
    CHECK(first("join") < first("broadcast"));
    // No update holds back a backward that is still to come.
    CHECK(last("all_reduce") < first("adam"));
    CHECK(last("mark") < first("adam"));
    CHECK(last("adam") < first("finish"));
}

TEST_CASE("one rank alone joins nobody and reduces nothing") {
    const std::vector<std::string> calls = train_devices({"alone", {1}, kAdamW})[0].calls;
    for (const char* name : {"join", "broadcast", "all_reduce", "finish"})
        CHECK(std::find(calls.begin(), calls.end(), name) == calls.end());
}

TEST_CASE("a model whose usage does not vary is asked once, and a change is not missed") {
    // All batches above 0.5, so that `extra` is used in every step.
    DeviceWorldOptions options;
    options.usage_varies = false;
    options.batch = [](int64_t) { return testing::small_batch(0); };
    const TrainingCase job{"static", {2}, kAdamW};
    CHECK(train_devices(job, options)[0].outcome.updates.at("extra") == job.steps);
    options.batch = [](int64_t) { return testing::small_batch(2); };
    CHECK(train_devices(job, options)[0].outcome.updates.at("extra") == 0);
}

TEST_CASE("a gradient that is not finite ends the run with its name and changes no parameter") {
    DeviceWorldOptions options;
    options.batch = [](int64_t micro_batch) {
        std::vector<c10::IValue> batch = testing::small_batch(micro_batch);
        // The batches of step 2.
        if (micro_batch >= 2) batch[1] = batch[1].toTensor() * INFINITY;
        return batch;
    };
    const TrainingCase job{"diverges", {2}, kAdamW, 1, 0.5};
    const std::string text = failure_of(job, options, ExitCode::kDiverged);
    CHECK_THAT(text, Catch::Contains("is not finite in step 2"));
    TrainingCase unclipped = job;
    unclipped.clipping = 0;
    CHECK_THAT(failure_of(unclipped, options, ExitCode::kDiverged),
               Catch::Contains("the loss of step 2, micro step 0 is"));
}

TEST_CASE("a peer that is lost during a step ends it with what the backend says") {
    DeviceWorldOptions options;
    options.prepare = [](FakeDevice& device) {
        device.finish_error = Error(ExitCode::kPeerLost, "rank 1 is gone");
    };
    CHECK_THAT(failure_of({"lost", {2}, kAdamW}, options, ExitCode::kPeerLost),
               Catch::Contains("rank 1 is gone"));
}

}  // namespace dslaunch
