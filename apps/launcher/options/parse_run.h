// The command line of `dslaunch [run] [options] TARGET [args]` and of `dslaunch verify`: parses
// argv and makes the help from the same table. Does not read the environment, and only checks
// whether files exist.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/text/help_page.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// Parses ARGUMENTS (without the program's name and `run` or `verify`). Throws Error{kUsage} under
// the same conditions as parse_options() and settle_run_options(). With --help or --version the
// target may be missing.
[[nodiscard]] RunOptions parse_run_options(std::span<const std::string> arguments,
                                           bool verify = false);

// Returns true if WORDS contain an option that chooses hosts or ranks. WORDS are the arguments of a
// role of dsworker. With such an option, the role is run as a job.
[[nodiscard]] bool chooses_ranks(std::span<const std::string> words);
// Parses WORDS: the role, the model, and then options of hosts and ranks. The role's own words may
// be between these options; they become RunOptions::arguments. Throws Error{kUsage} under the same
// conditions as parse_options(), and if the model is not the first word after the role.
[[nodiscard]] RunOptions parse_role_options(std::span<const std::string> words);

// Checks options against each other and chooses the device. Throws Error{kUsage} if there is no
// target, if a training option is given for a target that is not a model, or if two options exclude
// each other.
void settle_run_options(RunOptions& options);

// Returns the example commands that the help of dslaunch and of `dslaunch run` shows.
[[nodiscard]] std::vector<std::string> run_examples();

// Returns the help page of `dslaunch run` or `dslaunch verify`, with options by group. With ALL, it
// includes the flags of other launchers that are accepted or refused.
[[nodiscard]] HelpPage run_page(bool verify, bool all);

}  // namespace dslaunch::launcher
