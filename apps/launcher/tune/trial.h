// One trial of `dslaunch tune`: a normal job of a few steps in processes of its own. It keeps no
// results and no record, and its processes end with this one. Data path: options, overrides ->
// [here] -> job, whose metrics come back through a pipe -> time of a step. One thread: the
// caller's, which waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/options/run_options.h"
#include "launcher/tune/trial_steps.h"

namespace dslaunch::launcher {

// The end of a trial.
enum class TrialEnd { kMeasured, kFailed, kTimeOver, kInterrupted };

// The result of a trial.
struct TrialResult {
    TrialEnd end = TrialEnd::kFailed;
    double step_s = 0;       // kMeasured
    int64_t peak_bytes = 0;  // largest resident set of a rank; 0: not known
    std::string why;         // kFailed: the cause
    int exit_code = 0;       // kFailed
    double took_s = 0;       // from the start of the job to the end of its last process
};

// The limits of a trial.
struct TrialLimits {
    StepRules steps;
    std::chrono::steady_clock::time_point deadline;
    int signal_fd = -1;  // a signal that is pending here ends the trial
};

// Runs OPTIONS' job with OVERRIDES of its config until enough steps are measured, and ends it.
// REQUIRES: this process has one thread, and holds the signals (launch::open_end_signals()).
[[nodiscard]] TrialResult run_one_trial(const RunOptions& options,
                                        const std::vector<std::string>& overrides,
                                        const TrialLimits& limits);

}  // namespace dslaunch::launcher
