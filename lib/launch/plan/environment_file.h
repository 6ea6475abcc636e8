// Reads .deepspeed_env and --env-file: text -> variables. Their values may name variables of the
// rank's host. Pure; no threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/plan/worker_environment.h"

namespace dslaunch::launch {

struct EnvironmentFile {
    EnvironmentList variables;
    std::vector<int64_t> expanded;  // places of values that expand_variables() takes
};

// Parses one NAME=VALUE a line. Blank lines and lines that start with `#` are skipped; `export `
// before NAME is accepted; the value may hold `=` and may stand in '…' (taken as it is) or "…"
// (with \" \\ \n \t). An unquoted value ends at the end of the line and is trimmed. Outside of '…'
// $NAME, ${NAME} and ${NAME:-TEXT} (also -, :+ and +) name variables, and \$ is a `$`. A later line
// wins by standing later in the list. Throws Error{kUsage} with every problem at once, each as
// FILE_NAME:line: ….
[[nodiscard]] EnvironmentFile parse_environment_file(std::string_view text,
                                                     const std::string& file_name);

// Returns the value of a variable; null: it is not set.
using ValueOf = std::function<const std::string*(const std::string& name)>;
// Puts the variables' values into TEXT, a value of EnvironmentFile::expanded. An unset variable is
// empty, as in a shell. Other bytes give some text, and nothing worse.
[[nodiscard]] std::string expand_variables(std::string_view text, const ValueOf& value_of);

// Returns true for [A-Za-z_][A-Za-z0-9_]*.
[[nodiscard]] bool is_variable_name(std::string_view name);

// Returns true if the launch plan writes NAME for each rank, so that the user may not set it: RANK,
// WORLD_SIZE, MASTER_PORT, ….
[[nodiscard]] bool is_rank_variable(std::string_view name);

// Returns true if NAME has a prefix that remote workers get from the launcher's environment: NCCL_
// GLOO_ TORCH_ OMP_ ….
[[nodiscard]] bool has_forwarded_prefix(std::string_view name);

}  // namespace dslaunch::launch
