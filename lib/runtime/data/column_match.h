// The assignment of a row file's columns to forward's arguments. A pure function of names.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace dslaunch::runtime {

// The arguments of a text model. The column for `targets` contains, for each token, the next token.
inline constexpr const char* kTokensArgument = "tokens";
inline constexpr const char* kTargetsArgument = "targets";
// Advice on how to make targets from the labels that Hugging Face's Trainer takes.
inline constexpr const char* kShiftAdvice =
    "the target of each token must be the next token; in Python: "
    "safetensors.torch.save_file({\"tokens\": input_ids[:, :-1].contiguous(), \"targets\": "
    "labels[:, 1:].contiguous()}, FILE)";

// The names to match, and the choices of the config.
struct ColumnMatch {
    std::string path;                    // path of the file, for messages
    std::vector<std::string> columns;    // names of the file's columns
    std::vector<std::string> arguments;  // names of forward's arguments; a loss target is last
    bool has_target = false;         // true if the last argument is the target of the config's loss
    std::vector<bool> target_types;  // one per column: true if the loss's target may have its type
    std::string target_type;         // the target's type, for messages
    std::map<std::string, std::string> chosen;  // dslaunch.data.columns: argument -> column
    std::string spare;  // a column that may be left over; empty if there is none
};

// Returns the column of each argument: the column that `chosen` names, or else the column with the
// argument's name. If the config does not name the column of a loss's target, the target's name is
// empty, and the target gets the only remaining column of a possible type. If a single column and a
// single argument remain, they belong together. Columns may be left over only if `chosen` names
// every argument. Throws Error{kInput} that lists columns and arguments.
[[nodiscard]] std::vector<size_t> match_columns(const ColumnMatch& match);

}  // namespace dslaunch::runtime
