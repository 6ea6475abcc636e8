// Reads .deepspeed_env and --env-file: text -> variables. Their values may refer to variables of
// the rank's host. Pure; no threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/plan/worker_environment.h"

namespace dslaunch::launch {

// The variables of a file, in its order.
struct EnvironmentFile {
    EnvironmentList variables;
    std::vector<int64_t> expanded;  // indices of the variables that expand_variables() must expand
};

// Parses one NAME=VALUE per line. Skips blank lines and lines that start with `#`, and accepts
// `export ` before NAME. The value may contain `=`, and may be enclosed in '…' (taken literally) or
// "…" (with \" \\ \n \t). An unquoted value ends at the end of the line and is trimmed. Outside
// '…', $NAME, ${NAME} and ${NAME:-TEXT} (also -, :+ and +) refer to variables, and \$ is a `$`. A
// later line with the same NAME comes later in the list and therefore wins. Throws Error{kUsage}
// that lists all problems at once, each as FILE_NAME:line: ….
[[nodiscard]] EnvironmentFile parse_environment_file(std::string_view text,
                                                     const std::string& file_name);

// Returns the value of a variable, or null if it is not set.
using ValueOf = std::function<const std::string*(const std::string& name)>;
// Replaces the references in TEXT, a value of EnvironmentFile::expanded, by the variables' values.
// An unset variable is empty, as in a shell. If TEXT has another form, the result is arbitrary, but
// there is no error.
[[nodiscard]] std::string expand_variables(std::string_view text, const ValueOf& value_of);

// Returns true for [A-Za-z_][A-Za-z0-9_]*.
[[nodiscard]] bool is_variable_name(std::string_view name);

// Returns true if the launch plan sets NAME for each rank, so that the user may not set it: RANK,
// WORLD_SIZE, MASTER_PORT, ….
[[nodiscard]] bool is_rank_variable(std::string_view name);

// Returns true if NAME begins with one of the prefixes (NCCL_ GLOO_ TORCH_ OMP_ …) of variables
// that remote workers get from the launcher's environment.
[[nodiscard]] bool has_forwarded_prefix(std::string_view name);

}  // namespace dslaunch::launch
