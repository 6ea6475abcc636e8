// The options of commands, in the style of deepspeed and torchrun: `-` and `_` are the same in a
// name, a value follows as the next word or after `=`, and the first word that is not an option may
// end the options (it is a program, and its own arguments follow). A command declares rows; the
// parser and the help read the same rows. Commands in another style use base/text/command_line.h
// (docs/decisions/012). Pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/help_page.h"

namespace dslaunch::launcher {

// The declaration of one option.
struct Option {
    std::string_view names;       // "hostfile,H": long names with `-`, short ones of one letter;
                                  // the first is canonical
    std::string_view value_name;  // empty: no value; "[DIR]": a value may follow after `=`
    std::string_view help;        // for a refused option the reason and an alternative
    // Applies VALUE. Throws Error{kUsage}, whose message is printed after "--NAME: ". If this
    // function is empty, the option is refused.
    std::function<void(const std::string& value)> apply;
    bool repeatable = false;
    bool may_be_empty = false;           // true: an empty value means that the option is not given
    std::string_view group = "options";  // the group's title in the help
    std::string_view choices = "";       // "auto|cpu": all values that APPLY accepts; empty: no
                                         // list
};

// Applies the options in ARGUMENTS in their order. A long name may be shortened if only one option
// begins with it. A word that is not an option, or that comes after `--`, is passed to ON_WORD; if
// ON_WORD returns true, parsing ends. Returns the words that follow. If two rows have the same
// name, the first counts. Throws Error{kUsage} for an unknown option (naming the most similar
// option), an option given twice, a missing or bad value, and a refused option.
[[nodiscard]] std::span<const std::string> parse_options(
    std::span<const Option> options, std::span<const std::string> arguments,
    const std::function<bool(const std::string& word)>& on_word);

// Returns the help of OPTIONS by group; the groups are in the order in which they first occur.
[[nodiscard]] std::vector<HelpGroup> option_groups(std::span<const Option> options);

}  // namespace dslaunch::launcher
