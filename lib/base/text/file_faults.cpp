#include "base/text/file_faults.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "base/path.h"
#include "base/text.h"

namespace dslaunch {
namespace {

constexpr size_t kEntriesMax = 10'000;

}  // namespace

std::string near_file_text(const std::string& path) {
    std::error_code unreadable;
    const std::filesystem::path place(path);
    const std::string name = place.filename().string();
    if (name.size() < 3 || std::filesystem::exists(place, unreadable)) return "";
    std::vector<std::string> names;
    std::filesystem::directory_iterator entry(folder_of(path), unreadable);
    for (; entry != std::filesystem::directory_iterator() && names.size() < kEntriesMax;
         entry.increment(unreadable))
        names.push_back(entry->path().filename().string());
    const auto near = nearest(name, names);
    if (!near || *near == name) return "";
    return fmt::format("; did you mean `{}`?", printable((place.parent_path() / *near).string()));
}

std::string missing_folder_text(const std::string& path) {
    std::error_code unreadable;
    const std::string folder = folder_of(path);
    if (std::filesystem::exists(folder, unreadable) || unreadable) return "";
    return fmt::format("the folder {0} is not there; make it: mkdir -p {0}", printable(folder));
}

Download download_of(std::string_view content) {
    if (content.starts_with("version https://git-lfs")) return Download::kLfsPointer;
    const std::string beginning = lower(trim(content.substr(0, 64)));
    const bool is_page = beginning.starts_with("<!doctype html") || beginning.starts_with("<html");
    return is_page ? Download::kWebPage : Download::kDone;
}

std::string why_not_downloaded(Download download) {
    return download == Download::kLfsPointer
               ? "is a pointer of Git LFS, not the file itself; fetch it: git lfs pull"
               : "is a web page: the download failed; look at it and fetch it again";
}

}  // namespace dslaunch
