// Facts that /proc tells about a process, each empty when it ended meanwhile or may not be looked
// into. No state.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/process/environment_list.h"

namespace dslaunch::launch {

// Returns the ids of all processes, zombies included; empty where /proc cannot be read.
[[nodiscard]] std::vector<pid_t> all_processes();

[[nodiscard]] std::optional<uid_t> process_owner(pid_t pid);
// Returns the name of the program, without its arguments: they may hold secrets.
[[nodiscard]] std::string process_command(pid_t pid);
// Returns the environment that the process was started with.
[[nodiscard]] EnvironmentList process_environment(pid_t pid);

}  // namespace dslaunch::launch
