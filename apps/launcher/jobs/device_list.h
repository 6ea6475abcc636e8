// Shows the processes that hold the hosts' GPUs, for `ps --devices` and `stop --pid`. Data path:
// agents' device reports -> here -> screen. Pure, except for reading the records of jobs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/agent/device_report.h"
#include "launch/fleet/host_question.h"
#include "launcher/jobs/known_jobs.h"

namespace dslaunch::launcher {

// The report of one host on its GPUs, or the reason why there is none.
struct HostDevices {
    std::string host;
    std::string error;  // empty: there is a report
    launch::DeviceUseReport report;
};

// Decodes ANSWERS. Throws Error{kInternal} if a payload is malformed.
[[nodiscard]] std::vector<HostDevices> decode_devices(
    const std::vector<launch::HostAnswer>& answers);

// Returns a table with one row for each GPU and each process that holds the GPU. A free GPU has one
// row. The names of this user's jobs come from JOBS.
[[nodiscard]] std::string device_table(const std::vector<HostDevices>& hosts,
                                       const std::vector<KnownJob>& jobs);
// Returns one line: {"hosts": [{"host", "error" and the fields of device_report_fields()}]}.
[[nodiscard]] std::string devices_json(const std::vector<HostDevices>& hosts,
                                       const std::vector<KnownJob>& jobs);

// Returns a text like "process 12 (python3) of alice, 3 h 2 min old, holds GPU 0 (12.0 GiB), GPU 1,
// rank 3 of job x".
[[nodiscard]] std::string describe(const launch::DeviceProcess& process,
                                   const std::vector<KnownJob>& jobs);

// Runs `ps --devices` with ARGUMENTS.
int list_devices(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
