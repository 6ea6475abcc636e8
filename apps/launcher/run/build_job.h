// Data path: RunOptions, this machine -> [here] -> JobSpec. Reads the hostfile and environment
// files; contacts no host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/plan/job_spec.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

// Hosts whose agents connect to this machine by themselves, found without any option.
struct JoiningHosts {
    std::vector<launch::Host> hosts;  // empty: none; the first is this machine
    std::string listen;               // HOST:PORT
};

// The facts about this machine that a job depends on; tests make their own.
struct Machine {
    std::string host_name;
    int gpu_count = 0;             // /dev/nvidia[0-9]*
    std::string directory;         // the current one, absolute
    std::string binary_directory;  // folder of dslaunch and dsworker, absolute
    std::string default_hostfile;  // deepspeed's /job/hostfile; empty: there is none
    launch::EnvironmentList environment;
    JoiningHosts joining;  // hosts under mpirun

    [[nodiscard]] static Machine this_one();
    [[nodiscard]] std::optional<std::string> variable(std::string_view name) const;
};

struct BuiltJob {
    launch::JobSpec spec;
    std::vector<std::string> notes;  // choices made for the user that should be printed, one line
                                     // each
};

// REQUIRES: OPTIONS have a target. Throws Error{kUsage, kSetup} (DESIGN.md section 3): a bad
// hostfile or filter, an --env that is unset, more GPUs than the machine has.
[[nodiscard]] BuiltJob build_job(const RunOptions& options, const Machine& machine);

// Prints the notes on stderr; none with --quiet.
void print_notes(const BuiltJob& job, const RunOptions& options);

}  // namespace dslaunch::launcher
