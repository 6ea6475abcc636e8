// Processes that a job left on this machine, found by the job's id in their environment, and their
// end. Data path: `dslaunch stop` -> agent -> here, for a job whose launcher is dead. Never
// another job's, never another user's: the id must be equal, the owner must be who asks, and a
// process is signalled by id and start time. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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
    std::string job_id;
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

// The living processes of this user whose environment at their start had TORCHELASTIC_RUN_ID or
// DSL_JOB_ID equal to JOB_ID. This process and those above it are never among them.
[[nodiscard]] std::vector<LeftProcess> processes_of_job(std::string_view job_id);

// Sends TERM to all of them, KILL after 0.25 s, again to what they started meanwhile, for at most 2
// s, and blocks that long at most. The result is what was found, and which of it is gone.
[[nodiscard]] std::vector<LeftProcess> end_processes_of_job(std::string_view job_id);

}  // namespace dslaunch::launch
