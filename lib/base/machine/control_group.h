// Finds the control group of a process. No threads.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace dslaunch {

// Returns the path of a process's control group in the hierarchy that has CONTROLLER ("memory"), as
// in /job/step. TEXT is the content of the process's /proc/PID/cgroup. An empty CONTROLLER stands
// for the hierarchy of cgroup version 2. Returns nothing if TEXT names no such hierarchy.
[[nodiscard]] inline std::optional<std::string> find_control_group(std::string_view text,
                                                                   std::string_view controller) {
    // A line contains: number, controllers, path.
    for (const std::string& line : split(text, '\n')) {
        const size_t first = line.find(':');
        const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::vector<std::string> names =
            split(std::string_view(line).substr(first + 1, second - first - 1), ',');
        if (std::find(names.begin(), names.end(), controller) != names.end())
            return line.substr(second + 1);
    }
    return std::nullopt;
}

}  // namespace dslaunch
