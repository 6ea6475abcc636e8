// The options of commands that are written as those of deepspeed and torchrun are: `-` and `_` are
// alike in a name, a value follows as the next word or after `=`, and the first word that is no
// option may end them (a program and its own arguments). A command declares rows; parser and help
// read the same rows. Commands with a grammar of their own use base/text/command_line.h instead
// (docs/decisions/012). No threads: pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launcher {

struct Option {
    std::string_view names;       // "hostfile,H": long ones with `-`, short ones of one letter; the
                                  // first is canonical
    std::string_view value_name;  // empty: it takes no value; "[DIR]": a value may follow after `=`
    std::string_view help;        // the reason and what to do instead, when it is refused
    // Throws Error{kUsage} whose message goes after "--NAME: ". Empty: the option is refused.
    std::function<void(const std::string& value)> apply;
    bool repeatable = false;
};

// Applies the options among ARGUMENTS in their order. A word that is no option, or that stands
// after `--`, goes to ON_WORD; when that returns true, parsing ends there. Returns the words that
// were not looked at. Of two rows with one name the first is meant. Throws Error{kUsage}: an
// unknown option (with the nearest), one given twice, a missing or bad value, a refused option.
[[nodiscard]] std::span<const std::string> parse_options(
    std::span<const Option> options, std::span<const std::string> arguments,
    const std::function<bool(const std::string& word)>& on_word);

// One paragraph an option, 100 columns wide, each ending with a newline.
[[nodiscard]] std::string options_help(std::span<const Option> options);

}  // namespace dslaunch::launcher
