// Ends one process at a user's request. Data path: `dslaunch stop --pid` -> agent -> [here]. One
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/text/message.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {

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
    bool was_killed = false;  // true: only KILL ended it
    std::string error;        // the reason why nothing was done, or why it does not die
};

// Ends a process of this user: sends TERM, then KILL after the grace time. Refuses another user's
// process, a process that has reused the id, this process and its ancestors. Blocks for at most the
// grace time plus 2 s, and calls WHILE_WAITING every few milliseconds.
[[nodiscard]] EndProcessReply end_process(const EndProcessRequest& request,
                                          const std::function<void()>& while_waiting);

}  // namespace dslaunch::launch
