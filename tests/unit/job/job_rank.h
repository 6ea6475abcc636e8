// A whole job of one rank in this process: archive and config, steps, evaluation, checkpoints and
// final weights. All parts are the ones that dsworker uses.
#pragma once

#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/archive/scalar_types.h"
#include "graph/segment/compute_context.h"
#include "job/predict/host_admission.h"
#include "job/run/job_saving.h"
#include "job/run/job_state.h"
#include "job/setup/lower_options.h"
#include "job/setup/rank_comms.h"
#include "job/setup/set_up_job.h"
#include "job/verify/job_verifier.h"
#include "plan/step/plan_check.h"
#include "plan/step/recompute_groups.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/eval/evaluator.h"
#include "runtime/train/trainer.h"
#include "support/device/test_backend.h"
#include "support/metrics_keeper.h"
#include "support/places.h"
#include "support/temporary_folder.h"

namespace dslaunch::testing {

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
    // Called before the first step. Returns the work to do between steps, or null. It must outlive
    // the training.
    std::function<runtime::BetweenSteps*(const job::VerifierParts& parts)> watch = {};
    // Called before the training, which uses what it sets.
    std::function<void(runtime::TrainerParts& parts)> change = {};
    std::function<void()> trained = [] {};  // called after the last step
};

// One rank's run through dsworker's code (apps/worker/train/train.cpp), without a launcher.
class Rank {
  public:
    // BACKEND is null on the host. DEVICE is LibTorch's name of the device on which the rank
    // computes.
    Rank(const Job& job, test::TestBackend* backend, c10::Device device)
        : job_(job),
          backend_(backend),
          gpu_{device, runtime::DeviceBackendPtr(backend, {[](auto*) {}}), 0} {}

    Outcome run() {
        job::JobArguments arguments;
        arguments.model_path = job_.model;
        arguments.config_path = job_.config;
        arguments.open_device = [this](const config::RunConfig&) { return gpu_.device; };
        setup_ = job::set_up_job(arguments, place_);
        room_.check_host(setup_, place_, /*saves=*/true, backend_);
        states_.emplace(setup_, environment_, gpu_, kLimit);
        runtime::ArenaLayout arena(1);
        states_->add_slices(arena);
        comms_.open(environment_, setup_, std::move(arena), kLimit);
        job::JobSaving saving(setup_, comms_,
                              {job_.output, job_.resume, false, "", "a test", "", false, false,
                               std::chrono::seconds(60)});
        saving.resume();
        runtime::ModelBuffers buffers(*setup_.model, *comms_.own().collectives);
        const std::unique_ptr<runtime::ParameterState> state =
            states_->make(comms_, saving.saved(), 1);
        const storage::TrainingState resumed = saving.training();
        saving.begin(*state, buffers, false);
        Outcome outcome = train(*state, buffers, saving, resumed);
        static_cast<void>(
            saving.write_weights(*state, buffers, {setup_.config().steps, setup_.config().steps}));
        return outcome;
    }

  private:
    Outcome train(runtime::ParameterState& state, runtime::ModelBuffers& buffers,
                  job::JobSaving& saving, const storage::TrainingState& resumed) {
        const config::RunConfig& config = setup_.config();
        runtime::BatchLoader loader(
            setup_.data->train, {config.batch, 0, config.seed, config.data.shuffle, resumed.step,
                                 resumed.samples_seen});
        const plan::StepPlanOptions& options = setup_.plan_options;
        runtime::SegmentRunner segments(
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
        runtime::Evaluator evaluator(evaluator_parts(state, buffers), *setup_.data->eval);
        MetricsKeeper reporter;
        runtime::TrainerParts parts;
        parts.config = &config;
        parts.steps.info = &setup_.info;
        parts.steps.plan = &setup_.plan;
        parts.steps.segments = &segments;
        parts.steps.state = &state;
        parts.account = &state;
        parts.steps.collectives = &comms_.job();
        parts.steps.device = backend_;
        parts.reporter = &reporter;
        parts.evaluator = &evaluator;
        parts.loader = &loader;
        parts.checkpointer = saving.checkpointer();
        parts.resumed = resumed;
        const graph::ComputeContext context(true, graph::scalar_type_of(config.precision.compute),
                                            gpu_.device.type());
        runtime::BetweenSteps nothing;
        if (job_.watch)
            parts.between = job_.watch({&setup_, &comms_, &state, &nothing, job_.model, ""});
        if (job_.change) job_.change(parts);
        const runtime::TrainResult result = runtime::Trainer(std::move(parts)).run();
        job_.trained();
        Outcome outcome;
        for (const nlohmann::json& line : reporter.lines)
            if (line.contains("loss")) outcome.losses.push_back(line.at("loss"));
        outcome.eval_loss = result.eval_loss.value_or(0);
        outcome.planned =
            plan::peak_by_tier(setup_.plan)[static_cast<size_t>(plan::Tier::kDevice)].peak;
        if (backend_ != nullptr) outcome.measured = backend_->memory_state().peak;
        return outcome;
    }

    runtime::EvaluatorParts evaluator_parts(runtime::ReadableState& state,
                                            runtime::ModelBuffers& buffers) {
        runtime::EvaluatorParts parts;
        parts.model = setup_.model.get();
        parts.lowering = job::lower_options(setup_.config(), gpu_.device, /*training=*/false);
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
    test::TestBackend* backend_;
    runtime::RankDevice gpu_;
    Topology place_;
    launch::WorkerEnvironment environment_;
    job::JobSetup setup_;
    job::JobRoom room_;
    std::optional<job::JobState> states_;
    job::RankComms comms_;
};

// Writes a config into FOLDER and returns its job: gpt-tied with STEPS steps. EXTRA is added to the
// config.
inline Job job_of(const test::TemporaryFolder& folder, const std::string& extra,
                  int64_t steps = 4) {
    Job job;
    job.model = test::fixture_path("models/gpt-tied.pt");
    job.config = folder.path() + "/ds_config.json";
    job.output = folder.path() + "/run";
    std::ofstream(job.config) << R"({"train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2, "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, )"
                              << extra << R"( "dslaunch": {"steps": )" << steps
                              << R"(, "seed": 5, "data": {"context": 16, "train": ")"
                              << test::fixture_path("data/kjv.u16.bin")
                              << R"(", "eval_fraction": 0.01}}})";
    return job;
}

}  // namespace dslaunch::testing
