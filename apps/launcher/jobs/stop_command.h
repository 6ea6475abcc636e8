// `dslaunch stop JOB`: ends a job through its launcher or, if the launcher is dead, on its hosts.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `stop`. The result is the exit code. Throws Error.
[[nodiscard]] int stop_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
