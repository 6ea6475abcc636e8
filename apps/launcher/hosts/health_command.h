// `dslaunch health [options]`: starts `dsworker health` on every slot as a job is started, collects
// what the ranks measure, and prints who is to blame. docs/health.md describes it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace dslaunch::launcher {

// What is asked of the check itself; everything else on the command line says where it runs, as for
// `dslaunch run`.
struct HealthOptions {
    std::string backend;  // gloo, nccl; empty: by the device
    bool json = false;
    bool help = false;
    double min_bus_bandwidth = 0;  // GB/s
    double timeout_s = 120;
    std::vector<int64_t> sizes_bytes;  // empty: dsworker's own
    std::vector<std::string> rest;     // for parse_run_options
};

// ARGUMENTS without the word `health`. Throws Error{kUsage} naming the option.
[[nodiscard]] HealthOptions parse_health_options(std::span<const std::string> arguments);

// Prints text or JSON to stdout. The result is the exit code: 0 healthy, kSetup for what was found,
// else the job's own. Throws Error as run_job does. REQUIRES: called from the main thread, no other
// thread yet.
[[nodiscard]] int run_health(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
