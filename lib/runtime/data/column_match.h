// The match of a row file's columns to forward's arguments. A pure function of names.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace dslaunch::runtime {

// The arguments of a model of text, whose columns hold a token and the token after it.
inline constexpr const char* kTokensArgument = "tokens";
inline constexpr const char* kTargetsArgument = "targets";
// Says how labels as Hugging Face's Trainer takes them become targets.
inline constexpr const char* kShiftAdvice =
    "a target is the token after its own; in Python: safetensors.torch.save_file({\"tokens\": "
    "input_ids[:, :-1].contiguous(), \"targets\": labels[:, 1:].contiguous()}, FILE)";

struct ColumnMatch {
    std::string path;                    // path of the file, for messages
    std::vector<std::string> columns;    // the file's
    std::vector<std::string> arguments;  // forward's, the loss target last if there is one
    bool has_target = false;         // true if the last argument is the target of the config's loss
    std::vector<bool> target_types;  // one per column: it has a type that the loss's target has
    std::string target_type;         // that type, for messages
    std::map<std::string, std::string> chosen;  // dslaunch.data.columns: argument -> column
    std::string spare;                          // a column that may be left over; empty: none
};

// Returns the column of each argument: the one that `chosen` names, else the one of its own name.
// If the config does not name the column of a loss's target (its argument has an empty name), it is
// the one left that has the target's type. One column and one argument that are still left pair up.
// Columns may be left over only if `chosen` names every argument. Throws Error{kInput} that lists
// columns and arguments.
[[nodiscard]] std::vector<size_t> match_columns(const ColumnMatch& match);

}  // namespace dslaunch::runtime
