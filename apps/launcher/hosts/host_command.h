// The command lines of commands on hosts (exec, health, hosts, push): options of `run`, from the
// same table, and the command's own options.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/transport/transport.h"
#include "launcher/run/options.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

enum class RunRows {
    kHosts,    // rows for the hosts and the way to them
    kProgram,  // rows of kHosts, --env, --env-file, --chdir: the first word and all after it are a
               // program's
    kJob,      // all rows that a job of one program takes
};

struct HostCommand {
    HelpPage help;                // with its usage, without options
    std::vector<Option> options;  // preferred to those of `run` that have the same name
    RunRows run_rows = RunRows::kHosts;
};

struct ParsedCommand {
    RunOptions hosts;
    std::vector<std::string> words;
    bool help = false;  // true: the help was printed on stdout
};

// ARGUMENTS without the command's name. Throws Error{kUsage} as parse_options().
[[nodiscard]] ParsedCommand parse_host_command(std::span<const std::string> arguments,
                                               const HostCommand& command);

struct HostTargets {
    launch::JobSpec spec;  // a job with no work: transport, environment, directories, limits
    std::vector<launch::HostAddress> hosts;
};

// The hosts that OPTIONS name; without a hostfile this machine. Notes go to stderr. Throws
// Error{kUsage} as build_job().
[[nodiscard]] HostTargets find_hosts(const RunOptions& options);

}  // namespace dslaunch::launcher
