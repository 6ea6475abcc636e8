// `dslaunch logs JOB`: the output of a job's ranks, from its output folder or from its record.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `logs`. The result is the exit code. Throws Error.
[[nodiscard]] int logs_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
