// `dslaunch ps`: the jobs of this user.
#pragma once

#include <CLI/CLI.hpp>

namespace dslaunch::launcher {

// The callback sets EXIT_CODE, which must outlive APP's parse().
void add_ps_command(CLI::App& app, int& exit_code);

}  // namespace dslaunch::launcher
