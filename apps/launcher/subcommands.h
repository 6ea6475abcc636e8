// The subcommands of dslaunch: one row for each. The help, what runs, and what a mistyped word may
// have meant come from these rows alone.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dslaunch::launcher {

struct Subcommand {
    const char* name;
    const char* help;  // its lines in `dslaunch --help`; empty: not listed
    // WORDS begin with the name. The result is the exit code. Throws Error.
    int (*run)(std::span<const std::string> words);
    bool drops_token = false;  // neither ssh nor a command on a host inherits the token variable
    bool is_offered = true;    // to whoever mistypes
};

// All rows, in the order of the help.
[[nodiscard]] std::span<const Subcommand> subcommands();

// Null when NAME is none.
[[nodiscard]] const Subcommand* find_subcommand(std::string_view name);

// What `dslaunch --help` prints.
[[nodiscard]] std::string subcommands_help();

}  // namespace dslaunch::launcher
