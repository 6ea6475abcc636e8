// An agent's answers to who asks a host one thing: `hosts check`, `ps --devices`, `stop`, a
// launcher that fetches a file or begins a further attempt. Data path: frame -> here -> the code
// that knows -> frame. One thread: the agent's.
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
