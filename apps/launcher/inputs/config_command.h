// `dslaunch config check FILE` and `dslaunch config keys`: the meaning of a config, before anything
// runs.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `config`. Prints results to stdout, problems of a config to stderr; the result
// is the exit code, 65 (kConfig) for problems. Throws Error{kUsage}, also for a wrong --set.
[[nodiscard]] int config_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
