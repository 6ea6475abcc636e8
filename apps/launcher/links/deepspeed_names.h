// The programs that DeepSpeed installs, by name, and the subcommands of dslaunch that replace them.
// A link to dslaunch may have one of these names: the program then translates its own command line.
// `dslaunch links` makes such links.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launcher {

// One program of DeepSpeed.
struct DeepSpeedName {
    std::string_view name;     // the name of its file: "ds_ssh"
    std::string_view meaning;  // the subcommand of dslaunch, and the differences, in one line
    // Converts WORDS, the words after the program's name, to the words after `dslaunch`. Writes
    // notes on stderr. Throws Error{kUsage} for words without an equivalent in dslaunch; the
    // message names an alternative.
    std::vector<std::string> (*translate)(std::span<const std::string> words);
    bool shows_command = true;  // true: the translated command is printed before it runs
};

// Returns all programs, the launcher's names first.
[[nodiscard]] std::span<const DeepSpeedName> deepspeed_names();

// Returns the row of NAME; null if DeepSpeed has no program of that name.
[[nodiscard]] const DeepSpeedName* find_deepspeed_name(std::string_view name);

// Returns the words that dslaunch should run. PROGRAM is argv[0], which may include folders, and
// WORDS are the words after it. If PROGRAM is not the name of one of DeepSpeed's programs, returns
// WORDS themselves. Throws the errors of DeepSpeedName::translate.
[[nodiscard]] std::vector<std::string> meant_words(std::string_view program,
                                                   std::vector<std::string> words);

}  // namespace dslaunch::launcher
