// Reports a host's GPUs and the processes that use them. Data path: `dslaunch ps --devices` ->
// agent -> [here]. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/message.h"
#include "launch/machine/gpu_use.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {

// A process in a report: it uses a GPU, or the request asks for it (DeviceUseRequest).
struct DeviceProcess {
    ProcessName name;       // start_time is 0 if /proc does not show it, as in another container
    std::string user;       // user name or number; empty if not known
    bool is_own = false;    // true: it belongs to the user who asks
    std::string command;    // the name of its program; arguments may contain secrets
    int64_t age_s = -1;     // -1: not known
    std::string launch_id;  // DSL_LAUNCH_ID, if dslaunch started it for this user
    int64_t rank = -1;      // its rank, if dslaunch started it; else -1
    std::vector<GpuHold> holds;
};

// Payload of FrameKind::kDevices. PID: a process to report even if it uses no device; 0: none.
struct DeviceUseRequest {
    static constexpr const char* kWhat = "a question about devices";
    int64_t pid = 0;
};
// Payload of FrameKind::kDeviceReport.
struct DeviceUseReport {
    static constexpr const char* kWhat = "an answer about devices";
    std::vector<Gpu> gpus;
    std::vector<DeviceProcess> processes;  // by pid
    std::string note;                      // GpuUse::note
};
// Returns the GPUs and the processes that use them. Blocks as look_at_gpus() does.
[[nodiscard]] DeviceUseReport report_devices(const DeviceUseRequest& request);

}  // namespace dslaunch::launch
