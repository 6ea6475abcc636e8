// Finds and ends the processes that a launch left on this machine. Data path: `dslaunch stop`, or a
// restart of a job -> agent -> [here]. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/text/message.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {

// A process that a launch left on this machine.
struct LeftProcess {
    ProcessName name;
    std::string command;  // the name of its program; arguments may contain secrets
    std::string gpus;     // "0,1": devices /dev/nvidiaN that it has open; empty: none
    bool ended = false;
};

// All attempts, including attempts without a number.
inline constexpr int64_t kAllAttempts = std::numeric_limits<int64_t>::max();

// Payload of FrameKind::kStopJob.
struct StopJobRequest {
    static constexpr const char* kWhat = "a request to end a job";
    std::string launch_id;  // DSL_LAUNCH_ID; if empty, no process is found
    // Only processes of attempts with a smaller number (DSL_ATTEMPT) are ended.
    int64_t before_attempt = kAllAttempts;
};
// Payload of FrameKind::kJobStopped.
struct StopJobReply {
    static constexpr const char* kWhat = "an answer about an ended job";
    std::vector<LeftProcess> processes;
};

// Returns this user's living processes of the launch in REQUEST. They are recognized by the
// environment with which they were started, or by their control group. Never returns this process
// or its ancestors.
[[nodiscard]] std::vector<LeftProcess> find_leftovers(const StopJobRequest& request);

// Sends TERM to the processes that find_leftovers() returns, then KILL after 0.25 s, and repeats
// this for processes that were started meanwhile. Blocks until all are gone, but at most for
// kLeftoversMax, and calls WHILE_WAITING every few milliseconds. Returns the processes that were
// found and whether each is gone.
[[nodiscard]] std::vector<LeftProcess> end_leftovers(const StopJobRequest& request,
                                                     const std::function<void()>& while_waiting);

}  // namespace dslaunch::launch
