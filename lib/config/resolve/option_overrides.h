// The overrides of the config for which --lora and --op-library stand. Pure.
#pragma once

#include <string>
#include <vector>

#include "config/resolve/resolved.h"

namespace dslaunch::config {

// Returns the overrides for SPEC: "r=16,alpha=32,targets=*.q_proj,*.v_proj" sets keys of
// dslaunch.lora; a piece without `=` is one more name in the list before it. Throws Error{kUsage}
// naming the piece.
[[nodiscard]] std::vector<std::string> lora_overrides(const std::string& spec);

// Returns the override of the config for `--op-library FILE` with each of FILES.
[[nodiscard]] std::string op_libraries_override(const std::vector<std::string>& files);

// Throws Error{kConfig} if RESOLVED has libraries for which nobody asked: a config found in the
// model's archive or beside it may not name code that runs. IS_NAMED: the user gave the config's
// file.
void require_named_libraries(const Resolved& resolved, bool is_named);

}  // namespace dslaunch::config
