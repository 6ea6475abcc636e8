// The parts of a sample that a chat template does not know, and so leaves out of its text. Pure.
#pragma once

#include <string>

#include "tokens/chat/segments.h"

namespace dslaunch::tokens {

// Returns which of the sample's tools, documents, calls of tools and last reasoning CHAT leaves out
// of the text of SIDE, as a reason to refuse it; "" if CHAT writes all of them.
[[nodiscard]] std::string lost_part(const ChatSample& sample, const ChatTemplate& chat,
                                    PreferenceSide side);

}  // namespace dslaunch::tokens
