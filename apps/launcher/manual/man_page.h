// A man page of one command, in the macros of man(7), from the same page that --help prints.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/manual/command_page.h"

namespace dslaunch::launcher {

// The parts of a man page.
struct ManPage {
    CommandPath path;
    HelpPage help;
    std::string date;               // "2026-11-30"
    std::vector<CommandPath> also;  // the commands that SEE ALSO names
};

// Returns the name of a command's page: "dslaunch-ckpt-export". The name of its file also has ".1"
// at the end.
[[nodiscard]] std::string man_name(const CommandPath& path);

// Returns the page as troff source that ends with a newline.
[[nodiscard]] std::string man_text(const ManPage& page);

}  // namespace dslaunch::launcher
