// The text of --help, which has one form for every command of both programs: usage, what the
// command does, its arguments and options in aligned columns, examples, exit codes where it has its
// own, and the page of docs/ that says more. It is 80 columns wide. No threads: pure.
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
    std::string exit_codes = {};             // empty: those of every command
    std::string docs = {};                   // "docs/guide/checkpoints.md"
    std::vector<std::string> usage = {};     // "dslaunch ckpt ls [options] [PATH]"
    std::vector<HelpGroup> groups = {};
};

// Ends with a newline.
[[nodiscard]] std::string help_text(const HelpPage& page);

// The first sentence of what a command does, as a list of commands says it: "lists the jobs".
[[nodiscard]] std::string brief_of(const HelpPage& page);

// NAMES ("hostfile,H": without dashes) as the head of an option, short ones first. VALUE_NAME:
// "FILE", "[DIR]" for one that may follow after `=`, empty for none.
[[nodiscard]] std::string option_head(std::string_view names, std::string_view value_name);

}  // namespace dslaunch
