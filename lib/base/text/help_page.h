// The text of --help, in the same form for every command of both programs: usage, what the command
// does, its arguments and options in aligned columns, examples, its own exit codes, and the page in
// docs/ with more details. It is 80 columns wide. Man pages and completion read the same page as
// JSON. No threads: pure, except for print_help().
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// One argument or option of the help.
struct HelpEntry {
    std::string head;  // "-o, --output DIR"
    std::string text;
    std::vector<std::string> choices = {};  // the accepted values; empty if any value is
};

// Entries under one title.
struct HelpGroup {
    std::string title;  // "options"
    std::vector<HelpEntry> entries;
};

// The parts of a help page. A command supplies `does`, `examples`, `exit_codes` and `docs`; the
// command line fills in the rest.
struct HelpPage {
    std::string does = {};  // sentences in the third person; a list shows the first sentence. Lines
                            // are wrapped here and also end at each newline
    std::vector<std::string> examples = {};  // commands of at most 78 columns a line
    std::string exit_codes = {};             // the codes to explain; empty if only usual ones
    std::string docs = {};                   // "docs/guide/checkpoints.md"
    std::vector<std::string> usage = {};     // "dslaunch ckpt ls [options] [PATH]"
    std::vector<HelpGroup> groups = {};
};

// Returns the text of PAGE, which ends with a newline.
[[nodiscard]] std::string help_text(const HelpPage& page);

// Returns PAGE as one line of JSON: {"usage": […], "does", "groups": [{"title", "entries":
// [{"head", "text", "choices": […]}]}], "examples": […], "exit_codes", "docs"}.
[[nodiscard]] std::string help_json(const HelpPage& page);

// The environment variable that makes --help of both programs print help_json() if it is "json".
inline constexpr const char* kHelpFormVariable = "DSLAUNCH_HELP_FORM";

// Prints PAGE on stdout in the form that kHelpFormVariable asks for; default: help_text().
void print_help(const HelpPage& page);

// Returns the first sentence of PAGE.does, for a list of commands: "lists the jobs".
[[nodiscard]] std::string brief_of(const HelpPage& page);

// Returns the head of an option, such as "-H, --hostfile FILE", with short names first. NAMES:
// "hostfile,H", without dashes. VALUE_NAME: "FILE"; "[DIR]" for an optional value after `=`; empty
// if the option has no value.
[[nodiscard]] std::string option_head(std::string_view names, std::string_view value_name);

}  // namespace dslaunch
