// Finds the variables that the workers of a job get in addition to RANK and the like: variables of
// this machine, of .deepspeed_env and of the options. Data path: options, this machine's
// environment -> [here] -> JobSpec. Reads environment files.
#pragma once

#include "launch/plan/job_spec.h"
#include "launcher/options/machine.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// Returns the rules for the environment of SPEC's workers. Throws Error{kUsage} for a bad
// environment file, for an --env variable that is not set here or is reserved for dslaunch, and for
// a bad OMP_NUM_THREADS. REQUIRES: SPEC has its working folder, its target and its transport.
[[nodiscard]] launch::EnvironmentRules environment_of(const RunOptions& options,
                                                      const Machine& machine,
                                                      const launch::JobSpec& spec);

}  // namespace dslaunch::launcher
