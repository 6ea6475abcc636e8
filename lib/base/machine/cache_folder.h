// The user's cache folder holds only data that saves time: it may be deleted whenever dslaunch is
// not running.
#pragma once

#include <string>

namespace dslaunch {

// Returns $XDG_CACHE_HOME/dslaunch, else ~/.cache/dslaunch; empty if there is no home folder. The
// folder may not exist yet.
[[nodiscard]] std::string cache_folder();

}  // namespace dslaunch
