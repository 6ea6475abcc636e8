// Libraries of operators (dslaunch.op_libraries): native code that a rank loads before its model.
// Used by launcher and worker alike. No state; any thread.
#pragma once

#include <string>
#include <vector>

#include "config/resolve/resolved.h"

namespace dslaunch::config {

// The override of the config that `--op-library FILE` of each of FILES is.
[[nodiscard]] std::string op_libraries_override(const std::vector<std::string>& files);

// Throws Error{kConfig} if RESOLVED has libraries that nobody asked for: a config that was found in
// the model's archive or beside it may not name code that runs. IS_NAMED: the user gave the file of
// the config.
void require_named_libraries(const Resolved& resolved, bool is_named);

}  // namespace dslaunch::config
