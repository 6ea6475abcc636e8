// A host's GPUs and their holders as JSON, alike in `hosts check` and `ps --devices`. Pure.
#pragma once

#include <functional>
#include <string>

#include "base/text/json.h"
#include "launch/agent/device_report.h"

namespace dslaunch::launcher {

// Writes these fields into the open object: "note", "gpus": [{"index", "name", "memory_bytes",
// "used_bytes", "uuid", "driver", "ecc_errors", "nvlinks", "pcie_generation", "pcie_lanes",
// "pcie_lanes_max"}], "processes": [{"pid", "user", "own", "command", "age_s", "job_id", "rank",
// "gpus": [{"index", "bytes"}]}]; -1: not known. JOB_OF names the job of a process, or nothing.
void device_report_fields(const launch::DeviceUseReport& report,
                          const std::function<std::string(const launch::DeviceProcess&)>& job_of,
                          JsonWriter& json);

}  // namespace dslaunch::launcher
