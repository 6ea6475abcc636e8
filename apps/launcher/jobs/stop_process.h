// `dslaunch stop --pid HOST:PID`: ends one process of the user's own on a host, after asking.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `stop`. Asks on the terminal unless --yes is given. Returns 0 if the process
// has ended, 71 if it does not die. Throws Error{kUsage} (no such process, another user's, no
// answer), Error{kHosts}.
int stop_process_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
