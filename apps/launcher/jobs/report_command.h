// `dslaunch report [JOB|DIR]`: what to paste into a bug report.
#pragma once

#include <CLI/CLI.hpp>

namespace dslaunch::launcher {

// The callback sets EXIT_CODE, which must outlive APP's parse().
void add_report_command(CLI::App& app, int& exit_code);

}  // namespace dslaunch::launcher
