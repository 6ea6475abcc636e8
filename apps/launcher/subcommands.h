// The subcommands of dslaunch, one row each. The help, the dispatch, and the guess for a mistyped
// word use these rows alone.
#pragma once

#include <span>
#include <string_view>

#include "launcher/run/commands.h"

namespace dslaunch::launcher {

// The row of one subcommand.
struct Subcommand {
    const char* name;
    const char* help;  // the text in `dslaunch --help`; empty: not listed
    // Runs the subcommand. WORDS begin with its name. Returns the exit code. Throws Error.
    int (*run)(CommandWords words);
    bool drops_token = false;  // true: neither ssh nor a command on a host inherits the token
                               // variable
    bool is_offered = true;    // true: it is suggested for a mistyped word
};

// Returns all rows, in the order of the help.
[[nodiscard]] std::span<const Subcommand> subcommands();

// Returns the row of the subcommand NAME, or null if there is none.
[[nodiscard]] const Subcommand* find_subcommand(std::string_view name);

// Returns the page that `dslaunch --help` prints.
[[nodiscard]] HelpPage subcommands_page();

}  // namespace dslaunch::launcher
