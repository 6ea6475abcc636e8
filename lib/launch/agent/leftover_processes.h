// Processes that a launch left on this machine, found by its id in their environment or by its
// control groups (process/kill_group.h), and their end. Data path: `dslaunch stop`, for a job whose
// launcher is dead, or a launcher that begins a further attempt -> agent -> here. Never another
// launch's, though its job have the same name, never another user's: the id must be equal, the
// owner must be who asks, and a process is signalled by id and start time. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "launch/process/environment_list.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {

struct LeftProcess {
    ProcessName name;
    std::string command;  // the name of its program; its arguments may hold secrets
    std::string gpus;     // "0,1": devices /dev/nvidiaN that it has open; empty: none
    bool ended = false;
};

// Those without a number too.
inline constexpr int64_t kAllAttempts = std::numeric_limits<int64_t>::max();

// Payload of FrameKind::kStopJob.
struct StopJobRequest {
    std::string launch_id;  // DSL_LAUNCH_ID; empty: no process
    // Only processes of attempts with a smaller number (DSL_ATTEMPT).
    int64_t before_attempt = kAllAttempts;
};
// Payload of FrameKind::kJobStopped.
struct StopJobReply {
    std::vector<LeftProcess> processes;
};
[[nodiscard]] std::string encode(const StopJobRequest& request);
[[nodiscard]] std::string encode(const StopJobReply& reply);
// Throw Error{kInternal} on malformed bytes.
[[nodiscard]] StopJobRequest decode_stop_request(std::string_view payload);
[[nodiscard]] StopJobReply decode_stop_reply(std::string_view payload);

// The living processes of this user that REQUEST names, by their environment at their start or by
// the control group that they are in. This process and those above it are never among them.
[[nodiscard]] std::vector<LeftProcess> find_leftovers(const StopJobRequest& request);

// Sends TERM to all of them, KILL after 0.25 s, again to what they started meanwhile. Blocks until
// they are gone, kLeftoversMax at most, and calls WHILE_WAITING every few milliseconds. The result
// is what was found, and which of it is gone.
[[nodiscard]] std::vector<LeftProcess> end_leftovers(const StopJobRequest& request,
                                                     const std::function<void()>& while_waiting);

// Called before ranks with ENVIRONMENT start: gives them a control group of their own, where this
// process may make one, by which what they leave is found.
void begin_attempt(const EnvironmentList& environment);

}  // namespace dslaunch::launch
