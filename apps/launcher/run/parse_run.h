// The command line of `dslaunch [run] [options] TARGET [args]` and of `dslaunch verify`: parses
// argv, and makes the help text from the same table. Pure: reads no file and no environment.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

// Parses ARGUMENTS (without the program's name and `run` or `verify`). Throws Error{kUsage} as
// parse_options() and settle_run_options(). With --help or --version the target may be missing.
[[nodiscard]] RunOptions parse_run_options(std::span<const std::string> arguments,
                                           bool verify = false);

// Returns true if one of WORDS, of a role of dsworker, is an option that chooses hosts or ranks:
// the role is then a job.
[[nodiscard]] bool chooses_ranks(std::span<const std::string> words);
// Parses WORDS: the role, the model, then options of hosts and ranks among the role's own words,
// which become RunOptions::arguments. Throws Error{kUsage} as parse_options(), and if no model
// comes first.
[[nodiscard]] RunOptions parse_role_options(std::span<const std::string> words);

// Checks options against each other and decides the device. Throws Error{kUsage}: no target, a
// training option for a target that is not a model, two options that exclude each other.
void settle_run_options(RunOptions& options);

// Returns the commands that the help of dslaunch and of `dslaunch run` shows.
[[nodiscard]] std::vector<std::string> run_examples();

// Returns the help of the options of `dslaunch run` and `dslaunch verify`, grouped. ALL: also the
// flags of other launchers, which are accepted or refused. Ends with a newline.
[[nodiscard]] std::string run_options_help(bool verify, bool all);

}  // namespace dslaunch::launcher
