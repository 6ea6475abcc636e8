// An agent's answers to requests that need only one answer frame. The requests come from `hosts
// check`, `ps --devices` and `stop`, and from a launcher that fetches a file or begins a further
// attempt. One thread: the agent's.
#pragma once

#include <functional>
#include <optional>

#include "launch/protocol/frame.h"
#include "launch/protocol/push_messages.h"

namespace dslaunch::launch {

// Returns the answer to FRAME, or nullopt if FRAME is of another kind. Work that takes seconds
// calls WHILE_WAITING every few milliseconds. Throws Error{kInternal} on malformed payloads.
[[nodiscard]] std::optional<Frame> answer_command(const Frame& frame,
                                                  const std::function<void()>& while_waiting);

// Answers REQUEST; calls ALIVE every few megabytes while it reads files. If a file cannot be read,
// FetchReply::error gives the reason.
[[nodiscard]] FetchReply answer_fetch(const FetchRequest& request,
                                      const std::function<void()>& alive);

}  // namespace dslaunch::launch
