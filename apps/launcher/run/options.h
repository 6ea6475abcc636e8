// The options of commands, written as deepspeed's and torchrun's: `-` and `_` are alike in a name,
// a value follows as the next word or after `=`, and the first word that is not an option may end
// them (a program and its own arguments). A command declares rows; parser and help read the same
// rows. Commands with another grammar use base/text/command_line.h instead (docs/decisions/012).
// Pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/help_page.h"

namespace dslaunch::launcher {

struct Option {
    std::string_view names;       // "hostfile,H": long names with `-`, short ones of one letter;
                                  // the first is canonical
    std::string_view value_name;  // empty: no value; "[DIR]": a value may follow after `=`
    std::string_view help;        // for a refused option the reason and an alternative
    // Throws Error{kUsage} whose message goes after "--NAME: ". Empty: the option is refused.
    std::function<void(const std::string& value)> apply;
    bool repeatable = false;
    bool may_be_empty = false;           // true: an empty value means that the option is not given
    std::string_view group = "options";  // its title in the help
};

// Applies the options among ARGUMENTS in their order. A long name may be cut short if only one
// option begins so. A word that is not an option, or that stands after `--`, goes to ON_WORD; when
// that returns true, parsing ends there. Returns the words after that one. Of two rows with one
// name the first counts. Throws Error{kUsage}: an unknown option (with the nearest name), an option
// given twice, a missing or bad value, a refused option.
[[nodiscard]] std::span<const std::string> parse_options(
    std::span<const Option> options, std::span<const std::string> arguments,
    const std::function<bool(const std::string& word)>& on_word);

// Returns the help of OPTIONS by their groups, in the order of the first of each.
[[nodiscard]] std::vector<HelpGroup> option_groups(std::span<const Option> options);

}  // namespace dslaunch::launcher
