// `dslaunch [run] [options] TARGET [arguments]` and `dslaunch verify`: from the command line to the
// job's exit code.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

enum class RunAs {
    kUnnamed,  // dslaunch TARGET
    kRun,      // dslaunch run TARGET
    kVerify,   // dslaunch verify MODEL: a few steps, each beside one rank that computes all alone
};

// ARGUMENTS without `run` or `verify`. SUBCOMMANDS are the names to compare a
// mistyped one with. The result is the exit code. Throws Error. REQUIRES: called from the main
// thread, no other thread yet.
[[nodiscard]] int run_command(std::span<const std::string> arguments, RunAs as,
                              std::span<const std::string> subcommands);

// Runs a role of dsworker that needs no training (`generate`) on the ranks of a job. WORDS: see
// parse_role_options(). Result, errors and REQUIRES as run_command().
[[nodiscard]] int run_role(std::span<const std::string> words);

}  // namespace dslaunch::launcher
