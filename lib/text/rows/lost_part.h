// The parts of a sample that a chat template does not know, and so leaves out of its text. Pure.
#pragma once

#include <string>

#include "text/chat/segments.h"

namespace dslaunch::text {

// Returns the part of the sample that CHAT leaves out of the text of SIDE, the first of
// "tool_calls", "tools", "documents" and "reasoning" (the last answer's); "" if CHAT writes all of
// them.
[[nodiscard]] std::string lost_part(const ChatSample& sample, const ChatTemplate& chat,
                                    PreferenceSide side);

}  // namespace dslaunch::text
