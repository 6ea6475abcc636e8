// Functions on paths given as text.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace dslaunch {

// Returns the folder of PATH: "." for a bare name, "/" for an entry of the root.
[[nodiscard]] inline std::string folder_of(std::string_view path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string_view::npos) return ".";
    return std::string(path.substr(0, std::max<size_t>(slash, 1)));
}

// Returns PATH relative to the current folder, or PATH itself if it is not inside that folder. A
// relative path that looks like an option gets `./` in front.
[[nodiscard]] inline std::string path_from_here(const std::string& path) {
    std::error_code unreadable;
    const std::filesystem::path here = std::filesystem::current_path(unreadable);
    const std::string nearer = std::filesystem::path(path).lexically_relative(here).string();
    const bool is_below = !unreadable && !nearer.empty() && !nearer.starts_with("..");
    if (!is_below) return path;
    return nearer.starts_with('-') ? "./" + nearer : nearer;
}

}  // namespace dslaunch
