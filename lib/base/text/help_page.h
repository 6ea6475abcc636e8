// The text of --help, in one form for every command of both programs: usage, what the command does,
// its arguments and options in aligned columns, examples, its own exit codes, and the page of docs/
// that says more. It is 80 columns wide. No threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct HelpEntry {
    std::string head;  // "-o, --output DIR"
    std::string text;
};

struct HelpGroup {
    std::string title;  // "options"
    std::vector<HelpEntry> entries;
};

// A command gives what it does, its examples, exit codes and docs; its parser fills in the rest.
struct HelpPage {
    std::string does = {};  // sentences in the third person; the first one stands in lists. Lines
                            // are broken here, and end where it has a newline
    std::vector<std::string> examples = {};  // commands of at most 78 columns a line
    std::string exit_codes = {};             // empty: the common ones
    std::string docs = {};                   // "docs/guide/checkpoints.md"
    std::vector<std::string> usage = {};     // "dslaunch ckpt ls [options] [PATH]"
    std::vector<HelpGroup> groups = {};
};

// Returns the text of PAGE, which ends with a newline.
[[nodiscard]] std::string help_text(const HelpPage& page);

// Returns the first sentence of what a command does, for a list of commands: "lists the jobs".
[[nodiscard]] std::string brief_of(const HelpPage& page);

// Returns NAMES ("hostfile,H": without dashes) as an option's head, short ones first. VALUE_NAME:
// "FILE", "[DIR]" for a value that may follow after `=`, empty for none.
[[nodiscard]] std::string option_head(std::string_view names, std::string_view value_name);

}  // namespace dslaunch
