// The help page of any command of dslaunch, read back from the command itself: this program is
// started with --help and prints its page as JSON (base/text/help_page.h). So man pages and
// completion know what --help shows, also for the commands that dsworker answers.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/help_page.h"

namespace dslaunch::launcher {

// The words after `dslaunch` that name a command: {"ckpt", "export"}; empty: dslaunch itself.
using CommandPath = std::vector<std::string>;

// Returns the page of the command PATH. Throws Error.
using PageSource = std::function<HelpPage(const CommandPath& path)>;

// Starts this program with PATH and --help, and returns the page that it prints. Blocks until the
// started program has ended. Throws Error{kSetup} if it prints no page, for example because
// dsworker is missing.
[[nodiscard]] HelpPage page_of(const CommandPath& path);

// Returns the page of the command PATH with all options that the command accepts. For `run`, these
// include options of other launchers, but not refused options. For other commands, the page is
// page_of(PATH).
[[nodiscard]] HelpPage accepted_page_of(const CommandPath& path);

// Returns the page in TEXT, which must be a result of help_json(). Throws Error{kInternal} for any
// other text.
[[nodiscard]] HelpPage read_help_json(std::string_view text);

// Returns the entries under TITLE; none if PAGE has no such group.
[[nodiscard]] std::span<const HelpEntry> entries_of(const HelpPage& page, std::string_view title);

// An option as the head of a HelpEntry names it: "-o, --output DIR", "--resume[=DIR]".
struct OptionHead {
    std::vector<std::string> names;  // with their dashes
    std::string value_name;          // empty: the option takes no value
    bool value_is_optional = false;  // true: the value follows only after `=`
};

// Returns the parts of HEAD. REQUIRES: HEAD begins with a dash.
[[nodiscard]] OptionHead parse_head(const std::string& head);

// Returns PATH and all commands below it, in the order in which the help pages list them. A form
// such as `ps --devices`, which no page lists, follows its command.
[[nodiscard]] std::vector<CommandPath> paths_below(const CommandPath& path,
                                                   const PageSource& pages);

}  // namespace dslaunch::launcher
