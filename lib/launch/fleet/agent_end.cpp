#include "launch/fleet/agent_end.h"

#include <fmt/format.h>

#include "base/text.h"

namespace dslaunch::launch {
namespace {}  // namespace

std::string describe_agent_end(const TransportEvent& event, bool greeted,
                               const std::vector<std::string>& diagnostics) {
    std::string cause = printable_lines(event.text, kCauseIndent);
    if (cause.empty() && event.exit_status == kNoProgram && !diagnostics.empty()) {
        cause = diagnostics.back();  // the shell's or the loader's
    }
    if (!greeted && event.exit_status == kNoProgram) {
        return fmt::format(
            "there is no dslaunch at {}, or a library that it needs is missing (exit 127{}{}); "
            "`dslaunch push` with the same host options sends both",
            launcher_path(), cause.empty() ? "" : ": ", cause);
    }
    if (!cause.empty()) return cause;
    return fmt::format("its agent ended with {}{}", event.exit_status,
                       diagnostics.empty() ? "" : ": " + diagnostics.back());
}

}  // namespace dslaunch::launch
