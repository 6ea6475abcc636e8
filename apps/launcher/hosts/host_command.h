// Parses the command lines of commands on hosts (exec, health, hosts, push): options of `run`, from
// the same table, and the command's own options. Also writes a host's GPUs as JSON.
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
    std::vector<Option> options;  // preferred to options of `run` with the same name
    RunRows run_rows = RunRows::kHosts;
};

struct ParsedCommand {
    RunOptions hosts;
    std::vector<std::string> words;
    bool help = false;  // true: the help was printed on stdout
};

// Parses ARGUMENTS (without the command's name). Throws Error{kUsage} as parse_options().
[[nodiscard]] ParsedCommand parse_host_command(std::span<const std::string> arguments,
                                               const HostCommand& command);

struct HostTargets {
    launch::JobSpec spec;  // a job with no work: transport, environment, directories, limits
    std::vector<launch::HostAddress> hosts;
};

// Returns the hosts that OPTIONS name; without a hostfile this machine. Notes go to stderr. Throws
// Error{kUsage} as build_job().
[[nodiscard]] HostTargets find_hosts(const RunOptions& options);

// Writes these fields into the open object: "note", "gpus": [{"index", "name", "memory_bytes",
// "used_bytes", "uuid", "driver", "ecc_errors", "nvlinks", "pcie_generation", "pcie_lanes",
// "pcie_lanes_max"}], "processes": [{"pid", "user", "own", "command", "age_s", "job_id", "rank",
// "gpus": [{"index", "bytes"}]}]; -1: not known. JOB_OF names the job of a process, or nothing.
void device_report_fields(const launch::DeviceUseReport& report,
                          const std::function<std::string(const launch::DeviceProcess&)>& job_of,
                          JsonWriter& json);

}  // namespace dslaunch::launcher
