// The cache folder of this user holds what only saves time: it may be deleted whenever nothing
// runs.
#pragma once

#include <string>

namespace dslaunch {

// Returns $XDG_CACHE_HOME/dslaunch, else ~/.cache/dslaunch; empty without a home. May not exist.
[[nodiscard]] std::string cache_folder();

}  // namespace dslaunch
