// `dslaunch completion bash|zsh`: a script for the shell, and the words that it offers.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// Prints the script, which offers SUBCOMMANDS first. The result is the exit code. Throws
// Error{kUsage} for another shell.
[[nodiscard]] int completion_command(std::span<const std::string> arguments,
                                     std::span<const std::string> subcommands);

}  // namespace dslaunch::launcher
