#include "launch/transport/join/agent_starter.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kShownLines = 4;

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

}  // namespace

std::optional<size_t> AgentStarter::host_of(const std::string& line,
                                            const std::vector<HostAddress>& hosts) const {
    return host_named_in(line, hosts);
}

std::string AgentStarter::describe_end(int status, const std::deque<std::string>& lines) const {
    // A status above kSignalsMax does not mean a signal: for example, a program may itself exit
    // with 255.
    constexpr int kSignalsMax = 128 + 64;
    std::string text = status > 128 && status <= kSignalsMax
                           ? fmt::format("{} was ended by {}", name(), signal_text(status - 128))
                           : fmt::format("{} ended with {}", name(), status);
    const size_t first = lines.size() - std::min(lines.size(), kShownLines);
    for (size_t i = first; i < lines.size(); ++i) {
        text += (i == first ? ": " : "; ") + printable(trim(lines[i]));
    }
    return text;
}

StarterLine AgentStarter::read_line(const std::string& line,
                                    const std::vector<HostAddress>& hosts) const {
    return {host_of(line, hosts), line};
}

std::optional<size_t> host_named_in(const std::string& line,
                                    const std::vector<HostAddress>& hosts) {
    for (size_t at = 0; at < line.size();) {
        if (!is_name_character(line[at])) {
            ++at;
            continue;
        }
        size_t end = at;
        while (end < line.size() && is_name_character(line[end])) ++end;
        std::string_view word = std::string_view(line).substr(at, end - at);
        while (word.ends_with('.')) word.remove_suffix(1);
        for (size_t i = 0; i < hosts.size(); ++i) {
            if (hosts[i].name == word) return i;
        }
        at = end;
    }
    return std::nullopt;
}

}  // namespace dslaunch::launch
