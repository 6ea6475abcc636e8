// Command lines that CLI11 parses: the one place that says what is wrong with them, in the words of
// `dslaunch run`. Used by both programs. No threads.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace dslaunch {

// Parses WORDS (the program's name left out) with `-` and `_` alike in the names of options. False
// after --help, which is then printed to stdout. Throws Error{kUsage} that begins with the
// subcommand: an unknown option or subcommand (with the nearest), a missing or bad value, a word
// too many. REQUIRES: the name of APP is that of a subcommand, or "dslaunch", which is not said.
[[nodiscard]] bool parse_command_line(CLI::App& app, const std::vector<std::string>& words);

// Accepts whole numbers from LEAST on.
[[nodiscard]] CLI::Validator at_least(int64_t least);

}  // namespace dslaunch
