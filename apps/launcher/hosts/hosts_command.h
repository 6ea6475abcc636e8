// `dslaunch hosts check`: the state of all hosts in one table.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `hosts`. The result is the exit code. Throws Error.
[[nodiscard]] int hosts_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
