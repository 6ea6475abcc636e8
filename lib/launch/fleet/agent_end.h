// The reason why an agent is gone, in words for people: the same whether a job or a command had
// started it. Pure.
#pragma once

#include <string>
#include <vector>

#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The exit code of a shell and of a dynamic loader when there is no such program, or a library of
// it is missing.
inline constexpr int kNoProgram = 127;
// The columns before the further lines of a cause.
inline constexpr size_t kCauseIndent = 6;

// EVENT: the kEnded of a host. GREETED: its agent had said hello. DIAGNOSTICS: its last lines on
// stderr, printable. Never empty.
[[nodiscard]] std::string describe_agent_end(const TransportEvent& event, bool greeted,
                                             const std::vector<std::string>& diagnostics);

}  // namespace dslaunch::launch
