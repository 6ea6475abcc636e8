// Builds a job from the options. Data path: RunOptions, this machine -> [here] -> JobSpec. Reads
// the hostfile and environment files; contacts no host.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launcher/options/machine.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// A job that is ready to start.
struct BuiltJob {
    launch::JobSpec spec;
    std::vector<std::string> notes;  // choices made for the user that should be printed, one line
                                     // each
};

// Builds the job. Throws Error{kUsage, kSetup} (docs/help/exit-codes.md), for example for a bad
// hostfile or filter, an unset --env variable, or more GPUs than the machine has. REQUIRES: OPTIONS
// name a target.
[[nodiscard]] BuiltJob build_job(const RunOptions& options, const Machine& machine);

// Prints the notes on stderr, unless OPTIONS say --quiet.
void print_notes(const BuiltJob& job, const RunOptions& options);

}  // namespace dslaunch::launcher
