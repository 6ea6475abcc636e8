// Processes that a launch left on this machine, found by its id in their environment or by its
// control groups (process/kill_group.h), and their end. Data path: `dslaunch stop` -> agent ->
// here, for a job whose launcher is dead; an agent that starts a further attempt -> here. Never
// another launch's, though its job have the same name, never another user's: the id must be equal,
// the owner must be who asks, and a process is signalled by id and start time. One thread.
#pragma once

#include <cstdint>
#include <optional>
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

// Payload of FrameKind::kStopJob.
struct StopJobRequest {
    std::string launch_id;
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

struct LeftoverFilter {
    std::string launch_id;  // DSL_LAUNCH_ID; empty: no process
    // Only processes of attempts with a smaller number (TORCHELASTIC_RESTART_COUNT). Absent: all.
    std::optional<int64_t> before_attempt = {};
};

// The living processes of this user that passed FILTER by their environment at their start, or by
// the control group that they are in. This process and those above it are never among them.
[[nodiscard]] std::vector<LeftProcess> find_leftovers(const LeftoverFilter& filter);

// Sends TERM to all of them, KILL after 0.25 s, again to what they started meanwhile, for at most 2
// s, and blocks that long at most. The result is what was found, and which of it is gone.
[[nodiscard]] std::vector<LeftProcess> end_leftovers(const LeftoverFilter& filter);

// Called before ranks with ENVIRONMENT start: gives them a control group of their own where this
// process may make one, and ends what the attempts before theirs have left, as an agent does that
// is killed together with its guardian. Blocks as end_leftovers(). Throws Error{kSetup} naming
// processes that do not die.
void begin_attempt(const EnvironmentList& environment);

}  // namespace dslaunch::launch
