// `dslaunch [run] [options] TARGET [arguments]`: from the command line to the job's exit code.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `run`. IS_NAMED: `run` was written. SUBCOMMANDS are the names to compare a
// mistyped one with. The result is the exit code. Throws Error. REQUIRES: called from the main
// thread, no other thread yet.
[[nodiscard]] int run_command(std::span<const std::string> arguments, bool is_named,
                              std::span<const std::string> subcommands);

}  // namespace dslaunch::launcher
