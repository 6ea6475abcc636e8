// Parses the command lines of the commands that work on hosts (exec, health, hosts, push). They
// take options of `run`, from the same table, and their own options. Also writes a host's GPUs as
// JSON.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json.h"
#include "launch/agent/device_report.h"
#include "launch/plan/job_spec.h"
#include "launch/transport/transport.h"
#include "launcher/options/options.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// The rows in the option table of `run` that a command accepts.
enum class RunRows {
    kHosts,    // the rows that choose hosts and the transport
    kProgram,  // the rows of kHosts, --env, --env-file and --chdir; a program's command line
               // begins at the first word that is no option
    kJob,      // all rows that apply to a job that runs a program
};

// The declaration of a command that works on hosts.
struct HostCommand {
    HelpPage help;                // with the usage, but without options
    std::vector<Option> options;  // preferred to options of `run` with the same name
    RunRows run_rows = RunRows::kHosts;
};

// The parsed command line of a HostCommand.
struct ParsedCommand {
    RunOptions hosts;
    std::vector<std::string> words;
    bool help = false;  // true: the help was printed on stdout
};

// Parses ARGUMENTS (without the command's name). Throws Error{kUsage} under the same conditions as
// parse_options().
[[nodiscard]] ParsedCommand parse_host_command(std::span<const std::string> arguments,
                                               const HostCommand& command);

// The hosts that a command works on, and how they are reached.
struct HostTargets {
    launch::JobSpec spec;  // transport, environment, directories, limits; no work
    std::vector<launch::HostAddress> hosts;
};

// Returns the hosts that a job with OPTIONS would use. If no option names hosts, returns this
// machine. Prints notes on stderr. Throws the same errors as build_job().
[[nodiscard]] HostTargets find_hosts(const RunOptions& options);

// Writes these fields into the open object: "note", "gpus": [{"index", "name", "memory_bytes",
// "used_bytes", "uuid", "driver", "ecc_errors", "nvlinks", "pcie_generation", "pcie_lanes",
// "pcie_lanes_max"}], "processes": [{"pid", "user", "own", "command", "age_s", "job_id", "rank",
// "gpus": [{"index", "bytes"}]}]. A number that is not known is -1. JOB_OF returns the name of the
// job that a process belongs to, or an empty text.
void device_report_fields(const launch::DeviceUseReport& report,
                          const std::function<std::string(const launch::DeviceProcess&)>& job_of,
                          JsonWriter& json);

}  // namespace dslaunch::launcher
