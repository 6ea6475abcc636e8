// Reports and ends processes that hold a host's GPUs or that a launch left on this machine. Data
// path: `dslaunch ps --devices`, `dslaunch stop` -> agent -> here. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/text/message.h"
#include "launch/machine/gpu_use.h"
#include "launch/process/process_tree.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {

struct DeviceProcess {
    ProcessName name;       // start_time 0: no such process here, as of another container
    std::string user;       // its name or number; empty: not known
    bool is_own = false;    // true: the asking user's
    std::string command;    // the name of its program; its arguments may hold secrets
    int64_t age_s = -1;     // -1: not known
    std::string launch_id;  // only of own processes that dslaunch started
    int64_t rank = -1;      // of such a process; -1: none
    std::vector<GpuHold> holds;
};

// Payload of FrameKind::kDevices. PID: reports this process too, whatever it holds; 0: none.
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
// Payload of FrameKind::kEndProcess.
struct EndProcessRequest {
    static constexpr const char* kWhat = "a request to end a process";
    ProcessName name;
    int64_t grace_ms = 0;  // from TERM to KILL
};
// Payload of FrameKind::kProcessEnded.
struct EndProcessReply {
    static constexpr const char* kWhat = "an answer about an ended process";
    bool has_ended = false;
    bool was_killed = false;  // true: it needed KILL
    std::string error;        // the reason why nothing was done, or why it does not die
};

// Returns the GPUs and the processes that hold them. Blocks as look_at_gpus().
[[nodiscard]] DeviceUseReport report_devices(const DeviceUseRequest& request);

// Ends a process of this user: TERM, then KILL after the grace time. Refuses another user's
// process, another process with that id, this process and those above it. Blocks for the grace time
// and 2 s at most, and calls WHILE_WAITING every few milliseconds.
[[nodiscard]] EndProcessReply end_process(const EndProcessRequest& request,
                                          const std::function<void()>& while_waiting);

// A process that a launch left on this machine.
struct LeftProcess {
    ProcessName name;
    std::string command;  // the name of its program; its arguments may hold secrets
    std::string gpus;     // "0,1": devices /dev/nvidiaN that it has open; empty: none
    bool ended = false;
};

// All attempts, also those without a number.
inline constexpr int64_t kAllAttempts = std::numeric_limits<int64_t>::max();

// Payload of FrameKind::kStopJob.
struct StopJobRequest {
    static constexpr const char* kWhat = "a request to end a job";
    std::string launch_id;  // DSL_LAUNCH_ID; empty: no process
    // Only processes of attempts with a smaller number (DSL_ATTEMPT).
    int64_t before_attempt = kAllAttempts;
};
// Payload of FrameKind::kJobStopped.
struct StopJobReply {
    static constexpr const char* kWhat = "an answer about an ended job";
    std::vector<LeftProcess> processes;
};

// Returns the living processes of this user that REQUEST names, by their environment at their start
// or by their control group. This process and those above it are never among them.
[[nodiscard]] std::vector<LeftProcess> find_leftovers(const StopJobRequest& request);

// Sends TERM to all of them and KILL after 0.25 s, and repeats it for processes that they started
// meanwhile. Blocks until they are gone, kLeftoversMax at most, and calls WHILE_WAITING every few
// milliseconds. Returns the found processes and which of them are gone.
[[nodiscard]] std::vector<LeftProcess> end_leftovers(const StopJobRequest& request,
                                                     const std::function<void()>& while_waiting);

}  // namespace dslaunch::launch
