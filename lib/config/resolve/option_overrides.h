// Converts the options --lora and --op-library into config overrides with the same meaning. Any
// thread may call the functions.
#pragma once

#include <string>
#include <vector>

#include "config/resolve/resolved.h"

namespace dslaunch::config {

// Returns the overrides for SPEC, which sets keys of dslaunch.lora:
// "r=16,alpha=32,targets=*.q_proj,*.v_proj". A piece without `=` adds a name to the list before it.
// Throws Error{kUsage} if a piece is wrong; the message contains this piece.
[[nodiscard]] std::vector<std::string> lora_overrides(const std::string& spec);

// Returns one override of the config that replaces the options `--op-library FILE` for all FILES.
[[nodiscard]] std::string op_libraries_override(const std::vector<std::string>& files);

// Throws Error{kConfig} if RESOLVED names operator libraries that the user did not ask for: a
// config that was found in the model's archive or next to it must not choose code to run. IS_NAMED:
// the user gave the config file.
void require_named_libraries(const Resolved& resolved, bool is_named);

}  // namespace dslaunch::config
