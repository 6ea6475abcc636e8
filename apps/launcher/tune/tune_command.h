// The search of `dslaunch tune`, and of `dslaunch --autotuning`, from its options to the chosen
// config. Data path: options -> forecasts -> search -> [here] -> table, file. One thread.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// The choice of a search.
struct TuneOutcome {
    int code = 0;                  // exit code of the search
    std::vector<std::string> set;  // overrides of the config that was chosen; valid if CODE is 0
};

// Runs the search of `--autotuning` for the job of OPTIONS. Writes the chosen config as
// ds_config_optimal.json into the folder results_dir of the config's section `autotuning`. Throws
// the errors of `dslaunch tune`. REQUIRES: the same as for the functions of run/commands.h.
[[nodiscard]] TuneOutcome autotune(RunOptions options);

}  // namespace dslaunch::launcher
