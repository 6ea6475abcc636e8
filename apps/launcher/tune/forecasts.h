// The configs that a search may try, with their forecasts. They come from `dslaunch plan --tune
// --json`, which runs in a separate process, because only dsworker can read models. Data path:
// options, hosts -> [here] -> tune. One thread: the caller's, which waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launcher/options/run_options.h"
#include "plan/choose/trial_order.h"

namespace dslaunch::launcher {

// A config to try: its settings and forecasts, and the overrides that make it.
struct TuneCandidate {
    plan::TrialCandidate trial;
    int64_t rank_bytes = 0;  // forecast memory of a rank
    std::vector<std::string> set;
};

// The candidates, of which the first is the given config, and facts about the job.
struct Forecasts {
    std::vector<TuneCandidate> candidates;
    int64_t train_rows = 0;  // rows of a step over all ranks
    int64_t step_flops = 0;  // FLOPs of a step over all ranks, without recomputation
    std::string kept;        // why the micro batch must not change; empty if it may
};

// Returns the forecasts for SPEC's hosts and ranks. If `dslaunch plan` fails, throws Error with its
// code and message. Throws Error{kInterrupted} if a signal is pending at SIGNAL_FD, and
// Error{kUsage} if DEADLINE passes.
[[nodiscard]] Forecasts make_forecasts(const RunOptions& options, const launch::JobSpec& spec,
                                       std::chrono::steady_clock::time_point deadline,
                                       int signal_fd);

// Parses TEXT, the output of `dslaunch plan --tune --json`. Throws Error{kInternal} if TEXT is
// something else.
[[nodiscard]] Forecasts parse_forecasts(const std::string& text);

}  // namespace dslaunch::launcher
