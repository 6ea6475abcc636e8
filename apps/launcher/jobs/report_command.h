// `dslaunch report [JOB|DIR]`: prints a text to paste into a bug report.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `report`. The result is the exit code. Throws Error.
[[nodiscard]] int report_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
