// Shows the processes that hold GPUs of hosts, for `ps --devices` and `stop --pid`. Data path:
// agents' device reports -> here -> screen. Pure, but for the records of jobs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/agent/device_report.h"
#include "launch/fleet/host_question.h"
#include "launcher/jobs/known_jobs.h"

namespace dslaunch::launcher {

struct HostDevices {
    std::string host;
    std::string error;  // empty: there is a report
    launch::DeviceUseReport report;
};

// Decodes ANSWERS. Throws Error{kInternal} on malformed payloads.
[[nodiscard]] std::vector<HostDevices> decode_devices(
    const std::vector<launch::HostAnswer>& answers);

// Returns one row a GPU and process; a GPU that nobody holds has a row, too. JOBS name the jobs of
// this user's processes.
[[nodiscard]] std::string device_table(const std::vector<HostDevices>& hosts,
                                       const std::vector<KnownJob>& jobs);
// Returns one line: {"hosts": [{"host", "error" and the fields of device_report_fields()}]}.
[[nodiscard]] std::string devices_json(const std::vector<HostDevices>& hosts,
                                       const std::vector<KnownJob>& jobs);

// Returns "process 12 (python3) of alice, 3 h 2 min old, holds GPU 0 (12.0 GiB) and GPU 1, rank 3
// of job x".
[[nodiscard]] std::string describe(const launch::DeviceProcess& process,
                                   const std::vector<KnownJob>& jobs);

// Runs `ps --devices` with ARGUMENTS.
int list_devices(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
