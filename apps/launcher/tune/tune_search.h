// A search for the fastest config: tries candidates in the order of plan::TrialOrder and collects
// their results. Data path: forecasts -> [here] <-> trials -> table, config. One thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "config/tuning/autotuning.h"
#include "launcher/options/run_options.h"
#include "launcher/tune/forecasts.h"
#include "launcher/tune/trial.h"
#include "plan/choose/trial_order.h"

namespace dslaunch::launcher {

// The wishes for a search.
struct SearchWishes {
    plan::TrialRules rules;
    StepRules steps;
    std::vector<std::string> always;  // overrides of every trial
    std::chrono::steady_clock::time_point deadline;
    int signal_fd = -1;
    bool quiet = false;  // true: prints nothing about single trials
};

// Returns the rules of TUNING. TRIALS and TUNER come from the command line; if they are given, they
// replace TUNING's values.
[[nodiscard]] plan::TrialRules rules_of(const config::AutotuningConfig& tuning,
                                        std::optional<int> trials, const std::string& tuner);
[[nodiscard]] StepRules steps_of(const config::AutotuningConfig& tuning);

// A candidate's trials.
struct TriedConfig {
    int candidate = 0;
    int64_t peak_bytes = 0;
    std::string failure;  // empty: it was measured
    int exit_code = 0;    // the failure's exit code
};

// The result of a search.
struct SearchResult {
    plan::TrialOrder order;
    std::vector<TriedConfig> tried;  // in the order of the first trials
    bool interrupted = false;
    double took_s = 0;
};

// Tries candidates, in the order of the tuner, until all are tried, the time is over, or a signal
// is pending. REQUIRES: the same as for run_one_trial().
[[nodiscard]] SearchResult search_configs(const Forecasts& forecasts, const RunOptions& options,
                                          const SearchWishes& wishes);

}  // namespace dslaunch::launcher
