// Rank 0's reports on its steps: the metrics and the progress lines, the status line on the
// terminal, and the tables of time and traffic that a config may ask for. Data path: trainer ->
// [here] -> reporter, log. Threads: the compute lane; any thread may ask for the status line.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "config/run/run_config.h"
#include "plan/step/plan_check.h"
#include "runtime/executor/step_breakdown.h"
#include "runtime/state/state_account.h"
#include "runtime/train/comms_log.h"
#include "runtime/train/held_out_loss.h"
#include "runtime/train/reporter.h"
#include "runtime/train/step_facts.h"
#include "runtime/train/step_line.h"
#include "runtime/train/step_runner.h"
#include "runtime/train/step_targets.h"
#include "runtime/watch/device_peak.h"

namespace dslaunch::runtime {

// The sources of a report. All of them must outlive it.
struct StepReportParts {
    const config::RunConfig* config = nullptr;
    const StateAccount* account = nullptr;
    const StepRunner* runner = nullptr;
    HeldOutLoss* held_out = nullptr;  // null: nothing is held out
    Reporter* reporter = nullptr;
    const Clock* clock = nullptr;
    int64_t steps_before = 0;       // steps of earlier runs
    int64_t samples_before = 0;     // samples in the steps of earlier runs
    int64_t tokens_per_sample = 0;  // 0: samples are not tokens
    int64_t forward_flops = 0;      // this rank's work in one micro step
    DevicePeak peak;                // peak of this rank's device
    int ranks_of_stage = 1;         // ranks that train the same part of the model
};

// The state of the optimizer in a step.
struct StepRates {
    double lr = 0;
    std::optional<double> gradient_norm;  // nullopt: the plan computes none
};

// Reports steps; see the top of this file. The first rank calls everything. All other ranks call
// only the functions of the status line, is_logged(), follow_plan() and comms().
class StepReport {
  public:
    explicit StepReport(const StepReportParts& parts);

    // Notes that training begins: progress lines estimate the remaining time from here on.
    void begin() { begin_ = parts_.clock->now(); }
    // Update the status line: a step begins, other work begins, or SHARE of the other work is done.
    void begin_step(int64_t step) { line_.begin_step(step); }
    void begin_other(std::string_view what) { line_.begin_other(what); }
    void do_other(double share) { line_.do_other(share); }
    // Returns the status line. SHARE of the present step is done. Any thread.
    [[nodiscard]] std::string line(double share) const { return line_.text(share); }

    // Called when the runner has another plan.
    void follow_plan();
    // Warns if no target of a step counts, and if some micro batches have no target that counts.
    // Gives each warning only once.
    void warn_of_targets(int64_t step, const StepTargets& targets);
    // Reports a step that has ended.
    void end_step(int64_t step, const StepFacts& facts, const StepRates& rates);
    // Returns true if STEP has a progress line.
    [[nodiscard]] bool is_logged(int64_t step) const;
    // Returns the table of comms_logger; empty if it is not wanted.
    [[nodiscard]] std::string comms() const { return comms_.summary(); }

  private:
    void send_metrics(int64_t step, const StepFacts& facts, const StepRates& rates);
    [[nodiscard]] double mfu(double step_ms) const;
    void show(int64_t step, const StepFacts& facts, double lr);
    void send_progress(int64_t step, const StepFacts& facts, double lr);

    StepReportParts parts_;
    // The memory peaks of the plan, the same in every step.
    std::array<plan::TierPeak, plan::kTiers> tier_peaks_;
    std::array<Bytes, plan::kBufferKinds> kind_peaks_;
    StepLine line_;
    TimePoint begin_{};
    bool has_warned_of_no_targets_ = false;
    bool has_warned_of_empty_batches_ = false;
    double interval_ms_ = 0;  // time of the steps since the last progress line
    int64_t interval_steps_ = 0;
    StepBreakdown breakdown_;
    CommsLog comms_;
};

}  // namespace dslaunch::runtime
