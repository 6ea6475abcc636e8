// The monitors of a training job: their folders on this machine, and what the user does with them.
// Data path: RunConfig -> [here] -> JobSpec. Pure, except for log lines.
#pragma once

#include <string>
#include <vector>

#include "config/run/run_config.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launcher {

// Returns the monitors that CONFIG asks for. Relative paths begin in SPEC.working_directory.
// `wandb` and `comet` use the event files of `tensorboard` if it is enabled. Otherwise they use
// event files in the folder `tensorboard` of SPEC.output_directory.
[[nodiscard]] launch::MonitorSettings job_monitors(const config::RunConfig& config,
                                                   const launch::JobSpec& spec);

// Returns one line for each monitor of a job. The line names the monitor's folder, and the command
// that shows the files or sends them to a service. PROGRAMS is the folder of dslaunch.
[[nodiscard]] std::vector<std::string> describe_monitors(const config::MonitorsConfig& config,
                                                         const launch::MonitorSettings& monitors,
                                                         const std::string& programs);

}  // namespace dslaunch::launcher
