// The training loop: steps of the plan, their measurements, evaluation, and the decision to stop,
// agreed by all ranks. The caller builds everything that it uses (apps/worker/train.cpp). Thread:
// the compute lane's.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "config/run/run_config.h"
#include "launch/protocol/control.h"
#include "plan/step/plan_check.h"
#include "plan/step/step_plan.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/device_backend.h"
#include "runtime/comm/host/hang_limit.h"
#include "runtime/compute/segment_runner.h"
#include "runtime/compute/stage_link.h"
#include "runtime/data/batch_loader.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/step_breakdown.h"
#include "runtime/save/checkpointer.h"
#include "runtime/schedules/loss_scale.h"
#include "runtime/state/state_account.h"
#include "runtime/state/stepping_state.h"
#include "runtime/train/between_steps.h"
#include "runtime/train/comms_log.h"
#include "runtime/train/evaluator.h"
#include "runtime/train/reporter.h"
#include "runtime/train/step_facts.h"
#include "runtime/train/step_line.h"
#include "runtime/train/step_links.h"
#include "runtime/train/step_targets.h"

namespace dslaunch::runtime {

// The place of a rank in a pipeline.
struct StageParts {
    const StageLink* link = nullptr;  // link to the other stages; null: no pipeline
    const Link* far = nullptr;        // link whose traffic goes to other hosts; null: none does
    int64_t forward_flops = 0;        // the whole model's, in one micro step
    std::vector<plan::StagePart> parts = {};  // the plan's parts
    // One list per bucket: the stages that have a tied bucket's parameter, empty for other buckets.
    std::vector<std::vector<int>> stages_of_bucket = {};

    [[nodiscard]] int stage() const { return link == nullptr ? 0 : link->stage(); }
    [[nodiscard]] int stages() const { return link == nullptr ? 1 : link->stages(); }
};

struct TrainerParts {
    const config::RunConfig* config = nullptr;
    const plan::ModelInfo* info = nullptr;
    const plan::StepPlan* plan = nullptr;
    SegmentRunner* segments = nullptr;
    SteppingState* state = nullptr;
    const StateAccount* account = nullptr;
    Collectives* collectives = nullptr;  // joins all ranks
    // True if this rank reports the plan's bytes to other hosts. One of the host's ranks that train
    // the same parameters does, as all of them send these bytes together.
    std::optional<bool> tells_planned;
    // Collectives of some ranks, and of all ranks' devices. Their poison ends what blocks there.
    std::vector<Collectives*> groups;
    DeviceBackend* device = nullptr;   // null: the CPU
    Duration time_limit = kHangLimit;  // longest time that the device stands still in a step
    StageParts stage;
    Reporter* reporter = nullptr;
    Evaluator* evaluator = nullptr;        // null: nothing is held out
    const BatchLoader* loader = nullptr;   // Load waits for it; null: batches are always there
    Checkpointer* checkpointer = nullptr;  // null: nothing is saved
    BetweenSteps* between = nullptr;       // null: steps follow each other directly
    // The time when the last save must be done; nullopt: there is no limit.
    std::optional<std::chrono::system_clock::time_point> save_by;
    storage::TrainingState resumed;  // state of earlier runs; by default nothing
    // True if micro batches may differ in the number of their targets that count.
    bool targets_vary = true;
    int64_t tokens_per_sample = 0;  // of files of tokens and of rows; 0: samples are not tokens
    double peak_tflops = 0;         // peak of this rank's device; 0: not known
};

struct EvalPoint {
    int64_t step = 0;
    double loss = 0;
};

struct TrainResult {
    int64_t steps = 0;      // optimizer steps done, including those before a resume
    int64_t updates = 0;    // of these, steps that changed the model
    int64_t new_steps = 0;  // steps of this run
    int64_t new_updates = 0;
    double loss = 0;  // loss of the last step
    Bytes peak_rss;   // peak of the rank that had most
    // The most that LibTorch's allocator lent and held, on the GPU with the most; 0 on the CPU.
    Bytes peak_device;
    Bytes peak_device_held;
    Duration time{0};  // time of all steps, and of the evaluations between them
    std::optional<double> eval_loss;
    std::optional<EvalPoint> best_eval;  // the least held-out loss of this run
    StepLinks links;    // of rank 0's host, in the steps of this run; rank 0 has them
    std::string comms;  // the table of comms_logger, of rank 0; empty: not asked for
    bool asked_to_end = false;
};

// Returns the time when a job's last save must be done if the job has LIMIT_S seconds from START.
// With 0 the job's end is the time at which Slurm ends it, if SLURM_JOB_END_TIME says so, else
// there is no limit.
[[nodiscard]] std::optional<std::chrono::system_clock::time_point> last_save_time(
    int64_t limit_s, std::chrono::system_clock::time_point start);

class Trainer final : private InstructionRunner {
  public:
    // The objects that PARTS points to must outlive the trainer.
    explicit Trainer(TrainerParts parts);

    // Trains config.steps steps. Throws the first error of any lane. After that the process must
    // leave by _exit.
    [[nodiscard]] TrainResult run();

    // Returns this rank's place in its work; the first rank's with the job's progress. Any thread.
    [[nodiscard]] launch::Heartbeat heartbeat() const;

  private:
    void run(const plan::Instruction& instruction) override;
    void poison(const std::string& why) override;
    void check_device() override;
    [[nodiscard]] int segment_of_model(int segment) const override;
    [[nodiscard]] static uint32_t message_number(plan::Lane lane);
    void run_transfer(const plan::Instruction& instruction);
    void run_tie(const plan::Instruction& instruction);
    [[nodiscard]] StepFacts run_step(int64_t step);
    [[nodiscard]] StepRun last_run(int64_t step, const StepFacts& facts) const;
    void adapt_plan(const StepRun& run);
    void change_plan(const plan::StepPlan& plan, int64_t steps);
    [[nodiscard]] bool is_logged(int64_t step) const;
    void settle_loss_scale(int64_t step, StepFacts& facts);
    [[nodiscard]] StepTargets targets_of(int64_t step);
    [[nodiscard]] StepFacts gather(double loss, const std::optional<graph::RewardMeans>& rewards);
    void report_step(int64_t step, const StepFacts& facts);
    void show_step(int64_t step, const StepFacts& facts);
    void report_progress(int64_t step, const StepFacts& facts);
    [[nodiscard]] std::optional<double> evaluate(int64_t step);
    [[nodiscard]] bool save_if_due(int64_t step, const StepFacts& facts);
    void save(int64_t step, const StepFacts& facts);
    [[nodiscard]] bool time_is_over() const;
    [[nodiscard]] TrafficTable traffic() const;
    [[nodiscard]] StepLinks own_links();
    [[nodiscard]] bool is_first_rank() const { return parts_.collectives->topology().rank() == 0; }

    TrainerParts parts_;
    Executor executor_;
    mutable std::mutex plan_mutex_;  // guards parts_.plan as heartbeats see it
    // The plan's peaks, the same in every step.
    std::array<plan::TierPeak, plan::kTiers> tier_peaks_;
    std::array<Bytes, plan::kBufferKinds> kind_peaks_;
    std::atomic<int64_t> step_{0};  // step under way, from 1
    std::atomic<bool> evaluating_{false};
    // The number of steps whose end this rank has reached. Each counts as one more instruction, so
    // that heartbeats show the rank for which others wait there.
    std::atomic<uint64_t> ends_reached_{0};
    // An offset that makes all steps, other plans' too, count as the present plan's.
    int64_t instructions_before_ = 0;
    SystemClock clock_;
    StepLine line_;
    TimePoint last_step_end_{};
    TimePoint train_begin_{};
    LossScaler scaler_;
    TargetWeights targets_;
    bool said_no_targets_ = false;
    bool said_empty_batches_ = false;
    int64_t updates_ = 0;  // steps that were not skipped
    double lr_ = 0;
    int64_t faults_before_ = 0;
    Duration data_waited_before_{};
    std::optional<double> eval_loss_;
    std::optional<EvalPoint> best_eval_;
    bool eval_loss_is_new_ = false;  // no progress line has shown it
    double interval_ms_ = 0;         // steps since the last progress line
    int64_t interval_steps_ = 0;
    StepBreakdown breakdown_;
    CommsLog comms_;
    TrafficTable traffic_before_;  // at the end of the step before
    StepLinks links_;              // since the start of this run
    bool eval_cut_short_ = false;
    Duration longest_step_{0};
};

}  // namespace dslaunch::runtime
