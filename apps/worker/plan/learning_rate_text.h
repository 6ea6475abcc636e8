// The learning rate over the steps of a run, as `dslaunch plan --lr` prints it. Data path: run
// config -> runtime/schedules -> [here]. Pure.
#pragma once

#include <string>

#include "config/run/run_config.h"

namespace dslaunch::worker {

// A curve of all steps, and a table of the first, the highest and the last one. As JSON an object
// with `steps`, a list of {step, lr}, with `betas` where the scheduler moves them: all steps, or
// 1000 evenly spaced ones. Throws Error{kUsage} if the run's steps are not known.
[[nodiscard]] std::string learning_rate_text(const config::RunConfig& config, bool json);

}  // namespace dslaunch::worker
