// Which column of a row file feeds which argument of forward. A pure function of names.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace dslaunch::runtime {

struct ColumnMatch {
    std::string path;                    // of the file, for messages
    std::vector<std::string> columns;    // the file's
    std::vector<std::string> arguments;  // forward's, the loss target last if there is one
    bool has_target = false;             // the last argument is the target that the config names
    std::map<std::string, std::string> chosen;  // dslaunch.data.columns: argument -> column
};

// The column of each argument: the one that `chosen` names, else the one of its own name; then one
// column and one argument that are left pair up. A target is never paired up. Columns may be left
// only when `chosen` names every argument.
// Throws Error{kInput} that lists columns and arguments.
[[nodiscard]] std::vector<size_t> match_columns(const ColumnMatch& match);

}  // namespace dslaunch::runtime
