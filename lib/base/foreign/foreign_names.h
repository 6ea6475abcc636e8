// Maps names in Trainer, TRL, PEFT, axolotl, LLaMA-Factory, accelerate, Megatron, llama.cpp, vLLM
// and lm-eval to the names used here: keys of the config, options and subcommands of the command
// lines, and values of options. No threads: pure.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace dslaunch {

// One row: a name from another program and the advice for its user.
struct ForeignName {
    std::string_view name;  // in lower case, with `-` in place of `_`
    std::string_view key;   // the key of the config; empty if the config has none
    std::string_view here;  // what to give on the command line
    // The row applies to the commands that have this option. The commands that train have the
    // option `set`.
    std::string_view command = "set";
};

// Returns all rows, in the order in which they are tried.
[[nodiscard]] std::span<const ForeignName> foreign_names();

// Returns NAME in the form of the table: "maxSteps", "Max_Steps" -> "max-steps".
[[nodiscard]] std::string folded_name(std::string_view name);

// Returns the first row for NAME that applies to the command; nullptr if there is none. NAME may
// have upper case, and `_` in place of `-`. HAS_OPTION(option) returns true if the command has the
// option.
template <typename HasOption>
[[nodiscard]] const ForeignName* find_foreign(std::string_view name, const HasOption& has_option) {
    const std::string folded = folded_name(name);
    const std::span<const ForeignName> rows = foreign_names();
    const auto row = std::ranges::find_if(rows, [&](const ForeignName& one) {
        return one.name == folded && has_option(one.command);
    });
    return row == rows.end() ? nullptr : &*row;
}

// Returns the row for NAME that applies to the config and to the commands that train.
[[nodiscard]] const ForeignName* find_foreign(std::string_view name);

// Returns the advice for a user who gave ROW's name on the command line: "use --lr X", "leave it
// out: …".
[[nodiscard]] std::string advice_of(const ForeignName& row);

// Returns the advice for a user who typed WORD as a subcommand of COMMAND ("dslaunch ckpt"): the
// command that does it here. Returns an empty text if the table has no such word.
[[nodiscard]] std::string_view foreign_subcommand(std::string_view command, std::string_view word);

// Returns the choices among KNOWN, the values of an option, for another program's word VALUE:
// "int4 or nf4" for "q4_0". Returns an empty text if there are none.
[[nodiscard]] std::string foreign_value(std::string_view value, std::span<const std::string> known);

// Returns the advice for the value NAME of --launcher, in lower case, which is another program:
// ": use openmpi". Returns an empty text for any other value.
[[nodiscard]] std::string_view foreign_launcher(std::string_view name);

}  // namespace dslaunch
