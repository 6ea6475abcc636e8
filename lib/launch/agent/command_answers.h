// An agent's answers to the commands that ask each host one thing: `hosts check`, `ps --devices`,
// `stop`. Data path: frame -> here -> the code that knows -> frame. One thread: the agent's.
#pragma once

#include <functional>
#include <optional>

#include "launch/protocol/frame.h"

namespace dslaunch::launch {

// Returns the answer to FRAME, or nullopt if it asks no such thing. WHILE_WAITING is called every
// few milliseconds by what takes seconds. Throws Error{kInternal} on malformed payloads.
[[nodiscard]] std::optional<Frame> answer_command(const Frame& frame,
                                                  const std::function<void()>& while_waiting);

}  // namespace dslaunch::launch
