// DeepSpeed's section `autotuning`, as far as it has a meaning for `dslaunch tune`. This file also
// tells which keys the user has fixed on the command line. Data path: resolved config -> [here] ->
// tune, `dslaunch plan --tune`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/resolve/resolved.h"

namespace dslaunch::config {

// The settings of the section that the user gave; a value that was not given is not set.
struct AutotuningConfig {
    std::string metric = "throughput";  // latency, throughput or flops
    std::string results_dir = "autotuning_results";
    bool overwrite = true;
    std::optional<bool> fast;
    std::optional<std::string> tuner_type;  // gridsearch, random or model_based
    std::optional<int64_t> start_profile_step, end_profile_step;
    std::optional<int64_t> trials_max, without_gain_max;
    std::optional<int64_t> micro_sizes;
    std::optional<int64_t> micro_rows_min, micro_rows_max;
    std::optional<int64_t> train_rows_min, train_rows_max;
};

// Returns the section's settings. REQUIRES: RESOLVED has no problems.
[[nodiscard]] AutotuningConfig autotuning_of(const Resolved& resolved);

// Throws Error{kConfig} if limits in TUNING contradict each other, or if BATCH has more or fewer
// rows than they allow. The search does not change the number of rows.
void require_limits(const AutotuningConfig& tuning, const BatchConfig& batch);

// Returns true if the value of PATH is from the command line (--set or an option).
[[nodiscard]] bool is_from_command_line(const Resolved& resolved, std::string_view path);

// Returns the overrides that a short trial of RESOLVED's run needs: it evaluates nothing, writes no
// text, no events and no trace, and prints no tables.
[[nodiscard]] std::vector<std::string> trial_overrides(const Resolved& resolved);

}  // namespace dslaunch::config
