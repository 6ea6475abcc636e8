// The command lines of commands on hosts (exec, hosts, push): the host options of `run`, from the
// same table, and a command's own.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/transport/transport.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

struct CommandOption {
    std::string_view name;        // with `-`
    std::string_view value_name;  // empty: it takes no value
    std::string_view help;
    // Throws Error{kUsage} whose message goes after "--NAME: ".
    std::function<void(const std::string& value)> apply;
    bool repeatable = false;
};

struct HostCommand {
    std::string_view usage;  // the first lines of its help, with a newline at the end
    std::vector<CommandOption> options;
    bool runs_program = false;  // the first word and all after it are a program's; takes --env,
                                // --env-file and --chdir
};

struct ParsedCommand {
    RunOptions hosts;
    std::vector<std::string> words;
    bool help = false;  // it was printed on stdout
};

// ARGUMENTS without the command's name. Throws Error{kUsage} as parse_run_options().
[[nodiscard]] ParsedCommand parse_host_command(std::span<const std::string> arguments,
                                               const HostCommand& command);

struct HostTargets {
    launch::JobSpec spec;  // of a job with no work: transport, environment, directories, limits
    std::vector<launch::HostAddress> hosts;
};

// The hosts that OPTIONS name, without a hostfile this machine; notes go to stderr. Throws
// Error{kUsage} as build_job().
[[nodiscard]] HostTargets find_hosts(const RunOptions& options);

}  // namespace dslaunch::launcher
