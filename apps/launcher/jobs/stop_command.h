// `dslaunch stop JOB`: ends a job through its launcher or, when that is dead, on its hosts.
#pragma once

#include <CLI/CLI.hpp>

namespace dslaunch::launcher {

// The callback sets EXIT_CODE, which must outlive APP's parse().
void add_stop_command(CLI::App& app, int& exit_code);

}  // namespace dslaunch::launcher
