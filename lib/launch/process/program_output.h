// The output of a short program, within a time: `nvidia-smi`, `ssh -V`. One thread; it forks.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace dslaunch::launch {

// Returns what COMMAND writes on both streams, at most 1 MiB of it; empty if it cannot be run or
// does not end within LIMIT. COMMAND is found by this process's PATH and killed at the limit; one
// that does not die (a hanging driver) is not waited for.
[[nodiscard]] std::string program_output(const std::vector<std::string>& command,
                                         std::chrono::milliseconds limit);

}  // namespace dslaunch::launch
