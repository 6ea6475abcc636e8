// Overrides of the config that --lora and --op-library stand for. Pure.
#pragma once

#include <string>
#include <vector>

#include "config/resolve/resolved.h"

namespace dslaunch::config {

// The overrides that SPEC stands for: "r=16,alpha=32,targets=*.q_proj,*.v_proj" sets keys of
// dslaunch.lora; a piece without `=` is one more name in the list before it. Throws Error{kUsage}
// naming the piece.
[[nodiscard]] std::vector<std::string> lora_overrides(const std::string& spec);

// The override of the config that `--op-library FILE` of each of FILES is.
[[nodiscard]] std::string op_libraries_override(const std::vector<std::string>& files);

// Throws Error{kConfig} if RESOLVED has libraries that nobody asked for: a config that was found in
// the model's archive or beside it may not name code that runs. IS_NAMED: the user gave the file of
// the config.
void require_named_libraries(const Resolved& resolved, bool is_named);

}  // namespace dslaunch::config
