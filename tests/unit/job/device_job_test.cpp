// A whole job of one rank, from archive and config to steps, evaluation, checkpoints and final
// weights, on a test device and on the host: set up, admitted, made, trained and saved by the parts
// that dsworker uses.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "graph/lower/precision.h"
#include "graph/models/models.h"
#include "graph/segment/compute_context.h"
#include "job/predict/job_room.h"
#include "job/run/job_saving.h"
#include "job/run/job_state.h"
#include "job/setup/set_up_job.h"
#include "plan/step/plan_check.h"
#include "plan/step/recompute_groups.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/train/evaluator.h"
#include "runtime/train/trainer.h"
#include "support/catch.h"
#include "support/device/test_backend.h"
#include "support/device/test_device.h"
#include "support/metrics_keeper.h"
#include "support/places.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace runtime;
using test::TestBackend;
using test::TestBackendWorld;
using testing::MetricsKeeper;

namespace {

// Before the first backward of the process.
const bool kRegistered = (test::register_test_devices(), true);

constexpr Duration kLimit = std::chrono::minutes(5);

struct Outcome {
    std::vector<double> losses;
    double eval_loss = 0;
    Bytes planned;   // peak of the plan on the device
    Bytes measured;  // peak of the device
    std::string warning;
};

struct Job {
    std::string model;
    std::string config;
    std::string output;
    std::string resume = {};
};

// The rank's way through dsworker (apps/worker/train.cpp), without a launcher.
class Rank {
  public:
    // BACKEND is null on the host. DEVICE is LibTorch's name for where the rank computes.
    Rank(const Job& job, TestBackend* backend, c10::Device device)
        : job_(job),
          backend_(backend),
          gpu_{device, DeviceBackendPtr(backend, {[](auto*) {}}), 0} {}

    Outcome run() {
        job::JobArguments arguments;
        arguments.model_path = job_.model;
        arguments.config_path = job_.config;
        arguments.open_device = [this](const config::RunConfig&) { return gpu_.device; };
        setup_ = job::set_up_job(arguments, place_);
        room_.check_host(setup_, place_, /*saves=*/true, backend_);
        states_.emplace(setup_, environment_, gpu_, kLimit);
        ArenaLayout arena(1);
        states_->add_slices(arena);
        comms_.open(environment_, setup_, std::move(arena), kLimit);
        job::JobSaving saving(
            setup_, comms_, {job_.output, job_.resume, false, "a test", std::chrono::seconds(60)});
        saving.resume();
        ModelBuffers buffers(*setup_.model, *comms_.own().collectives);
        const std::unique_ptr<ParameterState> state = states_->make(comms_, saving.saved(), 1);
        const storage::TrainingState resumed = saving.training();
        saving.begin(*state, buffers, false);
        Outcome outcome = train(*state, buffers, saving, resumed);
        static_cast<void>(saving.write_weights(*state, buffers));
        return outcome;
    }

  private:
    Outcome train(ParameterState& state, ModelBuffers& buffers, job::JobSaving& saving,
                  const storage::TrainingState& resumed) {
        const config::RunConfig& config = setup_.config();
        BatchLoader loader(setup_.data->train, {config.batch, 0, config.seed, config.data.shuffle,
                                                resumed.step, resumed.samples_seen});
        const plan::StepPlanOptions& options = setup_.plan_options;
        SegmentRunner segments(
            *setup_.segmented, setup_.info,
            plan::make_recompute_groups(setup_.info, options.recompute_groups, {}),
            [&](int64_t step, int64_t micro_step) { return loader.take(step, micro_step); },
            {config.seed,
             config.batch.accumulation_steps,
             0,
             1,
             gpu_.device,
             /*read_losses_late=*/backend_ != nullptr,
             true,
             {},
             1});
        Evaluator evaluator(evaluator_parts(state, buffers), *setup_.data->eval);
        MetricsKeeper reporter;
        TrainerParts parts;
        parts.config = &config;
        parts.info = &setup_.info;
        parts.plan = &setup_.plan;
        parts.segments = &segments;
        parts.state = &state;
        parts.account = &state;
        parts.collectives = &comms_.job();
        parts.device = backend_;
        parts.reporter = &reporter;
        parts.evaluator = &evaluator;
        parts.loader = &loader;
        parts.checkpointer = saving.checkpointer();
        parts.resumed = resumed;
        const graph::ComputeContext context(true, graph::scalar_type_of(config.precision.compute),
                                            gpu_.device.type());
        const TrainResult result = Trainer(std::move(parts)).run();
        Outcome outcome;
        for (const nlohmann::json& line : reporter.lines)
            if (line.contains("loss")) outcome.losses.push_back(line.at("loss"));
        outcome.eval_loss = result.eval_loss.value_or(0);
        outcome.planned =
            plan::peak_by_tier(setup_.plan)[static_cast<size_t>(plan::Tier::kDevice)].peak;
        if (backend_ != nullptr) outcome.measured = backend_->memory_state().peak;
        return outcome;
    }

    EvaluatorParts evaluator_parts(ReadableState& state, ModelBuffers& buffers) {
        EvaluatorParts parts;
        parts.model = setup_.model.get();
        parts.config = &setup_.config();
        parts.buffers = &buffers;
        parts.state = &state;
        parts.device = gpu_.device;
        parts.rank = 0;
        parts.counts = true;
        parts.leaves = [] { return false; };
        return parts;
    }

    Job job_;
    TestBackend* backend_;
    RankDevice gpu_;
    Topology place_;
    launch::WorkerEnvironment environment_;
    job::JobSetup setup_;
    job::JobRoom room_;
    std::optional<job::JobState> states_;
    job::RankComms comms_;
};

Outcome run_on_host(const Job& job) {
    return Rank(job, nullptr, c10::kCPU).run();
}

Outcome run_on_device(const Job& job, Bytes memory = gib(1)) {
    TestBackendWorld world;
    test::TestDevice device(0, 7);
    TestBackend backend(world, 8, 0, &device.compute());
    backend.set_memory(memory);
    return Rank(job, &backend, device.device()).run();
}

std::string fixture(const std::string& name) {
    return std::string(test::source_dir()) + "/tests/fixtures/" + name;
}

// Writes a config of four steps of MODEL's job into FOLDER.
Job job_of(const test::TemporaryFolder& folder, const std::string& extra, int64_t steps = 4) {
    Job job;
    job.model = fixture("models/gpt-tied.pt");
    job.config = folder.path() + "/ds_config.json";
    job.output = folder.path() + "/run";
    std::ofstream(job.config) << R"({"train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2, "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, )"
                              << extra << R"( "dslaunch": {"steps": )" << steps
                              << R"(, "seed": 5, "data": {"context": 16, "train": ")"
                              << fixture("data/kjv.u16.bin") << R"(", "eval_fraction": 0.01}}})";
    return job;
}

void check_equal_weights(const std::string& a, const std::string& b, double tolerance) {
    const torch::jit::Module first = torch::jit::load(a + "/model.pt");
    const torch::jit::Module second = torch::jit::load(b + "/model.pt");
    auto other = second.named_parameters().begin();
    for (const auto& parameter : first.named_parameters()) {
        INFO(parameter.name);
        CHECK(parameter.value.is_cpu());
        const at::Tensor difference =
            parameter.value.to(at::kFloat) - (*other).value.to(at::kFloat);
        CHECK(difference.abs().max().item<double>() <= tolerance);
        ++other;
    }
}

}  // namespace

// Attention takes other operators on a test device, so that losses agree to rounding.
TEST_CASE("a job on a device trains, evaluates and saves what a job on the host does") {
    at::set_num_threads(1);
    for (const char* extra : {R"("zero_optimization": {"stage": 0},)",
                              R"("zero_optimization": {"stage": 3}, "bf16": {"enabled": true},)"}) {
        INFO(extra);
        const test::TemporaryFolder there, here;
        const Job on_device = job_of(there, extra), on_host = job_of(here, extra);
        const Outcome device = run_on_device(on_device), host = run_on_host(on_host);
        const bool half = std::string(extra).find("bf16") != std::string::npos;
        REQUIRE(device.losses.size() == 4);
        for (size_t step = 0; step < 4; ++step)
            CHECK(device.losses[step] == Approx(host.losses[step]).epsilon(half ? 5e-3 : 1e-5));
        CHECK(device.eval_loss == Approx(host.eval_loss).epsilon(half ? 5e-3 : 1e-5));
        CHECK(device.eval_loss > 0);
        check_equal_weights(on_device.output, on_host.output, 2 * 4 * 0.001);
    }
}

TEST_CASE("a checkpoint of a device's job is resumed on the host") {
    const test::TemporaryFolder folder, whole;
    const Outcome all = run_on_host(job_of(whole, "", 6));
    const Job first = job_of(folder, "", 3);
    static_cast<void>(run_on_device(first));
    Job rest = job_of(folder, "", 6);
    rest.resume = "auto";
    const Outcome resumed = run_on_host(rest);
    REQUIRE(resumed.losses.size() == 3);
    for (size_t step = 0; step < 3; ++step)
        CHECK(resumed.losses[step] == Approx(all.losses[step + 3]).epsilon(1e-5));
}

// A GPT whose backward takes most of its memory: that of the logits, 32 x 4,096 of them.
std::string wide_vocabulary(const test::TemporaryFolder& folder) {
    graph::GptOptions gpt;
    gpt.vocab = 4096;
    gpt.width = 16;
    gpt.layers = 2;
    gpt.heads = 2;
    gpt.context = 16;
    std::string path = folder.path() + "/wide.pt";
    graph::make_gpt(gpt).save(path);
    return path;
}

TEST_CASE("the plan counts the memory that a device's job takes") {
    const test::TemporaryFolder folder;
    const std::string wide = wide_vocabulary(folder);
    for (const char* extra : {R"("zero_optimization": {"stage": 2},)",
                              R"("zero_optimization": {"stage": 3}, "bf16": {"enabled": true},)",
                              R"("activation_checkpointing": {"number_checkpoints": 2},)"})
        for (const bool is_wide : {false, true}) {
            const test::TemporaryFolder own;
            Job job = job_of(own, extra);
            if (is_wide) job.model = wide;
            const Outcome outcome = run_on_device(job);
            const double ratio = static_cast<double>(outcome.measured.value) /
                                 static_cast<double>(outcome.planned.value);
            INFO(extra << (is_wide ? " wide: " : " tied: ") << outcome.measured.value
                       << " bytes measured, " << outcome.planned.value << " planned");
            CHECK(ratio > 0.95);
            CHECK(ratio < 1.05);
        }
}

// The parameters of one segment, and what it computes, are less than half of the model.
TEST_CASE("a device is measured without ever holding the whole model") {
    const test::TemporaryFolder folder;
    graph::GptOptions gpt;
    gpt.vocab = 256;
    gpt.width = 64;
    gpt.layers = 8;
    gpt.heads = 2;
    gpt.context = 4;
    Job job = job_of(folder, "");
    job.model = folder.path() + "/deep.pt";
    graph::make_gpt(gpt).save(job.model);
    test::TestDevice device(0, 7);
    test::DeviceMemory::instance().restart_peak(0);
    job::JobArguments arguments;
    arguments.model_path = job.model;
    arguments.config_path = job.config;
    arguments.overrides = {"dslaunch.data.context=4"};
    arguments.open_device = [&](const config::RunConfig&) { return device.device(); };
    const job::JobSetup setup = job::set_up_job(arguments, Topology{});
    const Bytes model{setup.model_info.parameter_numel() * 4};
    const Bytes peak = test::DeviceMemory::instance().peak(0);
    INFO(to_text(peak) << " of a model of " << to_text(model));
    CHECK(peak.value > 0);
    CHECK(peak.value < model.value / 2);
    for (const plan::SegmentInfo& segment : setup.model_info.segments)
        CHECK(segment.backward_peak + segment.backward_blocks > Bytes{});
    for (const graph::ModelParameter& parameter : setup.model->parameters())
        CHECK(parameter.tensor.is_cpu());
}

TEST_CASE("a job that the device has no memory for is refused before it takes any") {
    const test::TemporaryFolder folder;
    const std::string text = test::error_of(
        ExitCode::kSetup, [&] { static_cast<void>(run_on_device(job_of(folder, ""), mib(34))); });
    CHECK_THAT(text, Catch::Contains("memory of a GPU") && Catch::Contains("34.0 MiB there"));
}

}  // namespace dslaunch
