// Builds a job. Data path: RunOptions, this machine -> [here] -> JobSpec. Reads the hostfile and
// environment files; contacts no host.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launcher/run/machine.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

struct BuiltJob {
    launch::JobSpec spec;
    std::vector<std::string> notes;  // choices made for the user that should be printed, one line
                                     // each
};

// Builds the job. Throws Error{kUsage, kSetup} (docs/help/exit-codes.md): a bad hostfile or filter,
// an unset --env, more GPUs than the machine has. REQUIRES: OPTIONS have a target.
[[nodiscard]] BuiltJob build_job(const RunOptions& options, const Machine& machine);

// Prints the notes on stderr, unless --quiet.
void print_notes(const BuiltJob& job, const RunOptions& options);

}  // namespace dslaunch::launcher
