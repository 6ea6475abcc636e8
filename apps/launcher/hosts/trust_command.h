// `dslaunch hosts trust`: keys and known_hosts for all hosts, with one question and one password.
#pragma once

#include <span>
#include <string>

#include "base/text/help_page.h"

namespace dslaunch::launcher {

// The page that --help prints, without the options.
[[nodiscard]] HelpPage trust_page();

// ARGUMENTS without `hosts trust`. The result is the exit code. Throws Error.
[[nodiscard]] int trust_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
