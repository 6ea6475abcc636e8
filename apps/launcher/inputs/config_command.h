// `dslaunch config check FILE` and `dslaunch config keys`: what a config means, before anything
// runs.
#pragma once

#include <CLI/CLI.hpp>

namespace dslaunch::launcher {

// Adds `config` with its subcommands to APP. Their callbacks print results to stdout, problems to
// stderr, and set EXIT_CODE to 0 or 65 (kConfig); a wrong --set throws Error{kUsage}. EXIT_CODE
// must outlive APP's parse.
void add_config_command(CLI::App& app, int& exit_code);

}  // namespace dslaunch::launcher
