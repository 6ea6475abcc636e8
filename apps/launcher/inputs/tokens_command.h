// `dslaunch tokens bytes TEXT -o FILE`: text as a token file, one uint16 token a byte.
#pragma once

#include <CLI/CLI.hpp>

namespace dslaunch::launcher {

// Adds `tokens` with its subcommands to APP. Their callbacks throw Error: kInput for a text that
// cannot be read or is empty, kDisk when the token file cannot be written.
void add_tokens_command(CLI::App& app);

}  // namespace dslaunch::launcher
