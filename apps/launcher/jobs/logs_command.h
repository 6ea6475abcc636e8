// `dslaunch logs JOB`: what the ranks of a job wrote, from its output folder or from its record.
#pragma once

#include <CLI/CLI.hpp>

namespace dslaunch::launcher {

// The callback sets EXIT_CODE, which must outlive APP's parse().
void add_logs_command(CLI::App& app, int& exit_code);

}  // namespace dslaunch::launcher
