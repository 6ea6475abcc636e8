// The training loop: the steps of the plan, their measurements, evaluation, and the decision to
// stop, on which all ranks agree. The caller builds everything that it uses
// (apps/worker/train/train.cpp). Thread: the compute lane's.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/run/run_config.h"
#include "launch/protocol/control.h"
#include "runtime/data/batch_loader.h"
#include "runtime/save/checkpointer.h"
#include "runtime/schedules/update_schedule.h"
#include "runtime/state/state_account.h"
#include "runtime/train/between_steps.h"
#include "runtime/train/held_out_loss.h"
#include "runtime/train/step_facts.h"
#include "runtime/train/step_report.h"
#include "runtime/train/step_runner.h"
#include "runtime/train/step_targets.h"
#include "runtime/train/step_timer.h"
#include "runtime/watch/device_peak.h"
#include "runtime/watch/step_profiler.h"

namespace dslaunch::runtime {

// The objects and numbers that a trainer works with. The objects must outlive it.
struct TrainerParts {
    StepRunnerParts steps;
    const config::RunConfig* config = nullptr;
    const StateAccount* account = nullptr;
    // True if this rank reports how many bytes the plan sends to other hosts. Ranks of a host that
    // train the same parameters send these bytes together, so only one of them must report. With
    // nullopt, the first rank of the host reports.
    std::optional<bool> tells_planned;
    Reporter* reporter = nullptr;
    Evaluator* evaluator = nullptr;  // null: nothing is held out
    // All ranks call it with the step after each evaluation, but not after a request to end the
    // run. Without held-out data, they call it when an evaluation would be due. It may be empty.
    std::function<void(int64_t step)> after_evaluation = {};
    const BatchLoader* loader = nullptr;   // Load waits for it; null if batches need no wait
    Checkpointer* checkpointer = nullptr;  // null: nothing is saved
    // All ranks call it once, before the first step and before the first save. An evaluation before
    // the first step comes even earlier, so it cannot rely on this call. It may be empty.
    std::function<void()> begin_steps = {};
    BetweenSteps* between = nullptr;  // null if there is no work between steps
    // The time by which the last save must be done; nullopt if there is no limit.
    std::optional<std::chrono::system_clock::time_point> save_by;
    storage::TrainingState resumed;  // state of earlier runs; by default nothing
    // True if micro batches may differ in the number of targets that count.
    bool targets_vary = true;
    int64_t tokens_per_sample = 0;  // 0: samples are not tokens
    DevicePeak peak;                // peak of this rank's device
    // The model whose modules are profiled; null if this rank profiles no modules.
    graph::SegmentedModel* profiled = nullptr;
};

// The results of a run.
struct TrainResult {
    int64_t steps = 0;      // optimizer steps done, including those before a resume
    int64_t updates = 0;    // number of these steps that changed the model
    int64_t new_steps = 0;  // steps of this run
    int64_t new_updates = 0;
    double loss = 0;  // loss of the last step
    Bytes peak_rss;   // the largest peak of any rank
    // Peak memory in LibTorch's allocator, the maximum over all GPUs: bytes allocated to tensors,
    // and bytes reserved from the GPU. 0 on the CPU.
    Bytes peak_device;
    Bytes peak_device_held;
    Duration time{0};  // time of all steps, and of the evaluations between them
    std::optional<double> eval_loss;
    std::optional<EvalPoint> best_eval;  // the least held-out loss, see HeldOutLoss::best()
    StepLinks links;                     // rank 0: traffic of its host in this run
    std::string comms;                   // rank 0: the table of comms_logger; empty if not wanted
    bool asked_to_end = false;
    std::string ended_early;  // why the run ended before its last step; empty if it did not

    [[nodiscard]] bool ends() const { return asked_to_end || !ended_early.empty(); }
};

// Returns the time by which a job's last save must be done: shortly before the job ends. The job
// ends LIMIT_S seconds after START. If LIMIT_S is 0, it ends at the time in SLURM_JOB_END_TIME; if
// Slurm has not set that, there is no limit.
[[nodiscard]] std::optional<std::chrono::system_clock::time_point> last_save_time(
    int64_t limit_s, std::chrono::system_clock::time_point start);

// Trains; see the top of this file.
class Trainer {
  public:
    explicit Trainer(TrainerParts parts);

    // Trains until step config.steps. Throws the first error of any lane. After an error the
    // process must leave by _exit.
    [[nodiscard]] TrainResult run();

    // The parts of run(), for a caller that has a loop of its own and decides when to evaluate,
    // save and end. All ranks make the same calls: begin() once, then take_step(), evaluate() and
    // save() in any order, and end() at last. They throw as run() does.
    void begin();
    // Takes the next step, whatever its number, and does what follows each step: it reports, goes
    // on with a save that is under way, and changes the plan if that is due.
    [[nodiscard]] StepFacts take_step();
    // Returns the held-out loss after the last step. Only evaluations in run() can change the best
    // checkpoint or end a run early; this one does neither. REQUIRES: there is an evaluator.
    [[nodiscard]] double evaluate();
    // Starts to save the last step. If WAITS, returns only after the save has ended. REQUIRES:
    // there is a checkpointer, and begin() has been called.
    void save(bool waits) {
        begin_steps();
        save(step_, last_loss_, waits);
    }
    // Ends a save that is under way, and returns the facts of the whole run.
    [[nodiscard]] TrainResult end();

    // Returns the learning rate and the norm of the gradients of the last step.
    [[nodiscard]] StepRates rates() const {
        return {schedule_.lr(), parts_.steps.state->gradient_norm()};
    }
    // Return the number of steps done, and the number of steps that changed the model. Both include
    // the steps before a resume.
    [[nodiscard]] int64_t steps() const { return step_; }
    [[nodiscard]] int64_t updates() const { return schedule_.updates(); }

    // Returns this rank's position in its work; on the first rank also the job's progress. Any
    // thread.
    [[nodiscard]] launch::Heartbeat heartbeat() const;

  private:
    void begin_steps();
    [[nodiscard]] StepFacts next_step();
    [[nodiscard]] StepFacts run_step(int64_t step);
    void adapt_plan(int64_t step, const StepFacts& facts);
    [[nodiscard]] StepRun last_run(int64_t step, const StepFacts& facts) const;
    void change_plan(const plan::StepPlan& plan, int64_t steps);
    void end_update(int64_t step, StepFacts& facts);
    [[nodiscard]] StepFacts gather(double loss);
    void report_step(int64_t step, const StepFacts& facts);
    void evaluate_before(TrainResult& result);
    [[nodiscard]] std::optional<double> evaluate(int64_t step, bool counts, bool writes = true);
    [[nodiscard]] bool is_eval_due(int64_t step) const {
        return parts_.config->eval_interval > 0 && step % parts_.config->eval_interval == 0;
    }
    // Returns true if the evaluation after STEP is the best so far and is to be saved.
    [[nodiscard]] bool is_best_news(int64_t step) const {
        return parts_.config->save.best && held_out_ && held_out_->verdict().is_best &&
               held_out_->judge().record().step == step;
    }
    [[nodiscard]] bool is_over() const { return held_out_ && held_out_->judge().is_over(); }
    [[nodiscard]] bool save_if_due(int64_t step, const StepFacts& facts, bool ends);
    void save(int64_t step, double loss, bool waits);
    [[nodiscard]] bool is_time_over() const;
    void finish(TrainResult& result);
    [[nodiscard]] bool was_cut_short() const { return held_out_ && held_out_->was_cut_short(); }
    [[nodiscard]] bool is_first_rank() const {
        return parts_.steps.collectives->topology().rank() == 0;
    }

    TrainerParts parts_;
    SystemClock clock_;
    std::unique_ptr<MemoryPhases> memory_;  // null: memory_breakdown is off
    StepRunner runner_;
    std::unique_ptr<HeldOutLoss> held_out_;  // null: nothing is held out
    StepReport report_;
    StepProfiler profiler_;
    RankMeter meter_;
    UpdateSchedule schedule_;
    TargetWeights targets_;
    std::atomic<int64_t> step_;  // step under way, from 1
    double last_loss_;
    StepTimer timer_;
    StepLinks links_;  // since the start of this run
};

}  // namespace dslaunch::runtime
