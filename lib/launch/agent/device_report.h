// The processes that hold GPUs of a host, and the end of one of them. Data path: `dslaunch ps
// --devices`, `dslaunch stop --pid` -> agent -> here. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/machine/gpu_use.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {

struct DeviceProcess {
    ProcessName name;       // start_time 0: no such process here, as of another container
    std::string user;       // its name or number; empty: not known
    bool is_own = false;    // true: of the user that asks
    std::string command;    // the name of its program; its arguments may hold secrets
    int64_t age_s = -1;     // -1: not known
    std::string launch_id;  // of own processes that dslaunch started; else empty
    int64_t rank = -1;      // of such a process; -1: none
    std::vector<GpuHold> holds;
};

// Payload of FrameKind::kDevices. PID: this process besides, whatever it holds; 0: none.
struct DeviceUseRequest {
    int64_t pid = 0;
};
// Payload of FrameKind::kDeviceReport.
struct DeviceUseReport {
    std::vector<Gpu> gpus;
    std::vector<DeviceProcess> processes;  // by pid
    std::string note;                      // GpuUse::note
};
// Payload of FrameKind::kEndProcess.
struct EndProcessRequest {
    ProcessName name;
    int64_t grace_ms = 0;  // from TERM to KILL
};
// Payload of FrameKind::kProcessEnded.
struct EndProcessReply {
    bool has_ended = false;
    bool was_killed = false;  // true: it needed KILL
    std::string error;        // the reason why nothing was done, or why it does not die
};
[[nodiscard]] std::string encode(const DeviceUseRequest& message);
[[nodiscard]] std::string encode(const DeviceUseReport& message);
[[nodiscard]] std::string encode(const EndProcessRequest& message);
[[nodiscard]] std::string encode(const EndProcessReply& message);
// Throw Error{kInternal} on malformed bytes.
[[nodiscard]] DeviceUseRequest decode_device_request(std::string_view payload);
[[nodiscard]] DeviceUseReport decode_device_report(std::string_view payload);
[[nodiscard]] EndProcessRequest decode_end_request(std::string_view payload);
[[nodiscard]] EndProcessReply decode_end_reply(std::string_view payload);

// Blocks as look_at_gpus().
[[nodiscard]] DeviceUseReport report_devices(const DeviceUseRequest& request);

// Ends a process of this user: TERM, KILL after the grace time. Another user's, another one with
// that id, this one and those above it are refused. Blocks for the grace time and 2 s at most, and
// calls WHILE_WAITING every few milliseconds.
[[nodiscard]] EndProcessReply end_process(const EndProcessRequest& request,
                                          const std::function<void()>& while_waiting);

}  // namespace dslaunch::launch
