// Writes the command that every rank of a job runs, and finds the files that each host needs for
// it. Data path: options -> [here] -> launch plan, JobSpec. Reads the libraries that dsworker
// needs.
#pragma once

#include "launch/plan/job_spec.h"
#include "launch/plan/launch_plan.h"
#include "launcher/options/machine.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// Sets the command in REQUEST, and the target and its required files in SPEC. Throws Error{kUsage}
// for --resume without the folder that it needs. REQUIRES: SPEC has its folders and its transport.
void write_command(const RunOptions& options, const Machine& machine, launch::JobSpec& spec,
                   launch::PlanRequest& request);

}  // namespace dslaunch::launcher
