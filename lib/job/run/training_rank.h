// The parts of one rank of a training job, each made after the parts that it needs: device, model,
// plan, the other ranks, checkpoint, parameters. Data path: options, worker environment -> [here]
// -> trainer, of dsworker or of a program with a loop of its own. Threads: one; any thread may call
// poison().
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "job/predict/host_admission.h"
#include "job/run/job_saving.h"
#include "job/run/job_state.h"
#include "job/run/job_steps.h"
#include "job/setup/job_setup.h"
#include "job/setup/rank_comms.h"
#include "launch/plan/worker_environment.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/compute/rank_device.h"
#include "runtime/compute/segment_runner.h"
#include "runtime/eval/evaluator.h"
#include "runtime/eval/token_writer.h"
#include "runtime/train/reporter.h"
#include "runtime/train/trainer.h"

namespace dslaunch::job {

// The settings of a rank that neither the config nor the environment has.
struct TrainingOptions {
    JobArguments job;  // its open_device is set by TrainingRank
    std::string output;
    std::string resume;  // "auto" or a folder, see ResumeRequest::from
    bool new_data = false;
    // True: if there is no checkpoint to resume from, the run begins at step 0 without a warning. A
    // run that is restarted does the same.
    bool begins_if_new = false;
    double timeout_s = 0;  // the longest wait for another rank
    int threads = 1;       // of this rank
    std::string device_plugin = runtime::own_device_plugin();
};

// A rank that trains, set up in stages (see the top of this file). All ranks of the job make the
// calls in the order in which they are declared here.
class TrainingRank {
  public:
    // REPORTER must outlive this object.
    TrainingRank(TrainingOptions options, launch::WorkerEnvironment environment,
                 runtime::Reporter& reporter);

    // Opens the device, reads config, model and data, and plans the steps. Checks that the host has
    // enough memory for the job; on rank 0, also checks the disk space for the job's output. Throws
    // what set_up_job(), open_rank_device(), JobRoom and runtime::check_room_for_output() throw.
    void set_up();
    // Reserves the space on disk. Throws Error{kDisk}.
    void reserve();
    // Connects this rank to all ranks of the job. Throws what RankComms::open() and compare_plans()
    // throw. Blocks until all ranks have connected, or for the time limit.
    void meet();
    // Finds the checkpoint to resume from; see JobSaving::resume().
    void resume();
    // Makes parameters and optimizer states. If a step is traced, its durations are forecast from
    // RATES.
    void place_weights(std::optional<JobRates> rates);

    // Return the parts of a trainer and its evaluations. The caller owns the segments, the loader
    // and the evaluator, and adds them to trainer_parts().
    [[nodiscard]] runtime::SegmentRunner make_segments(
        runtime::SegmentRunner::TakeBatch take) const;
    [[nodiscard]] runtime::EvaluatorParts evaluator_parts();
    [[nodiscard]] runtime::TokenWriterParts writer_parts();
    [[nodiscard]] runtime::TrainerParts trainer_parts();

    // Called right before the first step or save, directly or through TrainerParts::begin_steps.
    // See JobSaving::begin_steps().
    void begin_steps() { saving_->begin_steps(); }

    // Called after the last step; see JobSaving::write_weights(). Adds the files that accompany the
    // weights of a Hugging Face folder. Throws Error{kDiverged} if RESULT says that no step changed
    // the model.
    [[nodiscard]] WrittenWeights write_weights(const runtime::TrainResult& result);
    // Returns true if any rank was asked to end. All ranks call it.
    [[nodiscard]] bool all_leave() const;
    // Leaves the groups of GPUs, after the last collective.
    void leave_groups() const;
    // Makes the waits of other ranks for this rank fail; WHY is the reason in their errors. The
    // device cannot be used any more. Any thread.
    void poison(const std::string& why) const;

    [[nodiscard]] bool first() const { return environment_.rank == 0; }
    [[nodiscard]] const TrainingOptions& options() const { return options_; }
    [[nodiscard]] const runtime::Topology& place() const { return place_; }
    [[nodiscard]] const runtime::RankDevice& gpu() const { return gpu_; }
    [[nodiscard]] JobSetup& setup() { return setup_; }
    [[nodiscard]] const JobSetup& setup() const { return setup_; }
    [[nodiscard]] const config::RunConfig& config() const { return setup_.config(); }
    [[nodiscard]] JobRoom& room() { return room_; }
    [[nodiscard]] RankComms& comms() { return comms_; }
    [[nodiscard]] const RankComms& comms() const { return comms_; }
    // REQUIRE: reserve(), resume() and place_weights() were called.
    [[nodiscard]] const JobState& states() const { return *states_; }
    [[nodiscard]] runtime::ParameterState& state() { return *state_; }
    [[nodiscard]] JobSteps& steps() { return *steps_; }
    // Returns the progress of the run that is resumed, or no progress.
    [[nodiscard]] const storage::TrainingState& resumed() const { return resumed_; }

  private:
    [[nodiscard]] std::string describe_owner() const;
    [[nodiscard]] std::chrono::milliseconds time_limit() const;
    [[nodiscard]] std::chrono::milliseconds claim_wait_max() const;
    [[nodiscard]] bool own_buffers() const;
    [[nodiscard]] bool targets_vary() const;
    [[nodiscard]] runtime::DevicePeak peak() const;
    void tell(std::string_view what) const {
        if (options_.job.begins) options_.job.begins(what);
    }

    std::chrono::system_clock::time_point start_ = std::chrono::system_clock::now();
    TrainingOptions options_;
    launch::WorkerEnvironment environment_;
    runtime::Reporter& reporter_;
    runtime::Topology place_;
    runtime::RankDevice gpu_;  // destroyed after everything that is stored on it
    JobSetup setup_;
    JobRoom room_;
    std::optional<JobState> states_;
    RankComms comms_;
    std::optional<runtime::ModelBuffers> buffers_;
    std::unique_ptr<runtime::ParameterState> state_;
    std::optional<JobSaving> saving_;  // its thread may read the state
    std::optional<JobSteps> steps_;
    storage::TrainingState resumed_;
};

}  // namespace dslaunch::job
