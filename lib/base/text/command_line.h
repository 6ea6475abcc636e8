// Command lines that CLI11 parses: the one place that says what is wrong with them, in the words of
// `dslaunch run`. Used by both programs. Who declares options includes <CLI/CLI.hpp>. No threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace dslaunch {

// Parses WORDS (the program's name and the subcommand's left out) with `-` and `_` alike in the
// names of options. False after --help, which is then printed to stdout. Throws Error{kUsage} that
// begins with the subcommand: an unknown option or subcommand (with the nearest), a missing or bad
// value, a word too many. REQUIRES: APP is named as it is typed, "dslaunch ps", or after a role of
// dsworker.
[[nodiscard]] bool parse_command_line(CLI::App& app, const std::vector<std::string>& words);

// Accepts whole numbers from LEAST on.
[[nodiscard]] CLI::Validator at_least(int64_t least);

}  // namespace dslaunch
