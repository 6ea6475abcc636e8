// The search for parts of a sample that a chat template does not support, and therefore leaves out.
// Pure.
#pragma once

#include <string>

#include "text/chat/segments.h"

namespace dslaunch::text {

// Returns the name of the first part that CHAT leaves out of the text of SIDE: "tool_calls",
// "tools", "documents" or "reasoning" (the reasoning of the last answer). Returns "" if CHAT writes
// all parts.
[[nodiscard]] std::string lost_part(const ChatSample& sample, const ChatTemplate& chat,
                                    PreferenceSide side);

}  // namespace dslaunch::text
