// Paths as texts.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace dslaunch {

// The folder of PATH: "." of a bare name, "/" of what lies there.
[[nodiscard]] inline std::string folder_of(std::string_view path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string_view::npos) return ".";
    return std::string(path.substr(0, std::max<size_t>(slash, 1)));
}

}  // namespace dslaunch
