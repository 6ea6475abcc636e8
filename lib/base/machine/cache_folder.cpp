#include "base/machine/cache_folder.h"

#include <cstdlib>

namespace dslaunch {

std::string cache_folder() {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/dslaunch";
    const char* home = std::getenv("HOME");
    if (home == nullptr || home[0] != '/') return {};
    return std::string(home) + "/.cache/dslaunch";
}

}  // namespace dslaunch
