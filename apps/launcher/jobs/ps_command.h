// `dslaunch ps`: the jobs of this user.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `ps`. The result is the exit code. Throws Error.
[[nodiscard]] int ps_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
