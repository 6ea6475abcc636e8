// `dslaunch exec [options] -- COMMAND…`: one program on all hosts, equal outputs shown once.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `exec`. The result is the exit code: the highest of all hosts. Throws Error.
[[nodiscard]] int exec_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
