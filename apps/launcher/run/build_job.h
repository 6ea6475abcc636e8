// RunOptions and what this machine is -> JobSpec: the hostfile and environment files are read here,
// no host is contacted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/plan/job_spec.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

// Hosts whose agents come by themselves to where this machine listens, found without any option.
struct JoiningHosts {
    std::vector<launch::Host> hosts;  // empty: none; the first is this machine
    std::string listen;               // HOST:PORT
};

// The facts about this machine that decide a job; a test writes its own.
struct Machine {
    std::string host_name;
    int gpu_count = 0;             // /dev/nvidia[0-9]*
    std::string directory;         // the current one, absolute
    std::string binary_directory;  // of dslaunch, absolute; dsworker stands beside it
    std::string default_hostfile;  // deepspeed's /job/hostfile; empty: it does not exist
    launch::EnvironmentList environment;
    JoiningHosts joining;  // under mpirun

    [[nodiscard]] static Machine this_one();
    [[nodiscard]] std::optional<std::string> variable(std::string_view name) const;
};

struct BuiltJob {
    launch::JobSpec spec;
    std::vector<std::string> notes;  // what was decided for the user and should be said, one line
                                     // each
};

// REQUIRES: options with a target. Throws Error{kUsage, kSetup} as DESIGN section 3 says: a
// bad hostfile or filter, an --env that is unset, more GPUs than there are.
[[nodiscard]] BuiltJob build_job(const RunOptions& options, const Machine& machine);

// The notes on stderr; none with --quiet.
void print_notes(const BuiltJob& job, const RunOptions& options);

}  // namespace dslaunch::launcher
