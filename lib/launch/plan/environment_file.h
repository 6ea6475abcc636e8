// .deepspeed_env and --env-file: text -> variables. Pure; no threads.
#pragma once

#include <string>
#include <string_view>

#include "launch/plan/worker_environment.h"

namespace dslaunch::launch {

// One NAME=VALUE a line; blank lines and lines that start with `#` are skipped, `export ` before
// NAME is accepted, the value may hold `=` and may stand in '…' (taken as it is) or "…" (with \"
// \\ \n \t). An unquoted value ends at the end of the line and is trimmed; nothing is expanded. A
// later line wins by standing later in the list. Throws Error{kUsage} with every problem at once,
// each as FILE_NAME:line: ….
[[nodiscard]] EnvironmentList parse_environment_file(std::string_view text,
                                                     const std::string& file_name);

// [A-Za-z_][A-Za-z0-9_]*
[[nodiscard]] bool is_variable_name(std::string_view name);

// True: the launch plan writes NAME for each rank, so that the user may not set it: RANK,
// WORLD_SIZE, MASTER_PORT, ….
[[nodiscard]] bool is_rank_variable(std::string_view name);

// One of the prefixes that remote workers get from the launcher's environment: NCCL_ GLOO_ TORCH_
// OMP_ ….
[[nodiscard]] bool has_forwarded_prefix(std::string_view name);

}  // namespace dslaunch::launch
