// An agent's answers to a launcher that fetches a file (launch/protocol/push_messages.h). One
// thread: the agent's; blocks while it reads.
#pragma once

#include <functional>

#include "launch/protocol/push_messages.h"

namespace dslaunch::launch {

// ALIVE is called every few megabytes while files are read. A file that cannot be read is told in
// FetchReply::error.
[[nodiscard]] FetchReply answer_fetch(const FetchRequest& request,
                                      const std::function<void()>& alive);

}  // namespace dslaunch::launch
