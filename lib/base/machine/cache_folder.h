// The cache folder is where this user keeps what only saves time: it may be deleted whenever
// nothing runs.
#pragma once

#include <string>

namespace dslaunch {

// $XDG_CACHE_HOME/dslaunch, else ~/.cache/dslaunch; empty without a home. It need not exist yet.
[[nodiscard]] std::string cache_folder();

}  // namespace dslaunch
