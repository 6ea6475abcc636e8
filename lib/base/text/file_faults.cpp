#include "base/text/file_faults.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/path.h"
#include "base/text.h"

namespace dslaunch {
namespace {

constexpr size_t kEntriesMax = 10'000;
constexpr size_t kBeginningBytes = 4096;  // the part of a file that is examined
constexpr size_t kAnswerBytesMax = 256;   // the longest text of a server's error
constexpr const char* kCutOff =
    ": the download, copy or program that wrote it was interrupted; fetch or make it again";

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
    return fmt::format("the folder {0} does not exist; make it: mkdir -p {0}", printable(folder));
}

std::string download_fault(std::string_view content) {
    if (content.empty()) return std::string("is empty") + kCutOff;
    if (content.starts_with("version https://git-lfs"))
        return "is a pointer of Git LFS, not the file itself; fetch it: git lfs pull";
    content = content.substr(0, kBeginningBytes);
    if (content.find_first_not_of('\0') == std::string_view::npos)
        return std::string("contains only zero bytes") + kCutOff;
    const std::string beginning = lower(trim(content.substr(0, 64)));
    if (beginning.starts_with("<!doctype html") || beginning.starts_with("<html"))
        return "is a web page instead of the file: the download failed; read the page, and "
               "download the file again";
    for (const char* answer : {"entry not found", "not found", "invalid username or password"})
        if (content.size() < kAnswerBytesMax && beginning.starts_with(answer))
            return fmt::format(
                "contains \"{}\", a server's answer instead of the file: the download failed; "
                "fetch it again",
                printable(trim(content.substr(0, 64))));
    return "";
}

std::string download_fault_at(const std::string& path) {
    std::error_code unreadable;
    const std::filesystem::path place(path);
    if (!std::filesystem::exists(place, unreadable)) {
        const std::filesystem::path to = std::filesystem::read_symlink(place, unreadable);
        return to.empty() ? ""
                          : fmt::format(
                                "is a link to {}, which does not exist: copy the files that the "
                                "links point to (cp -rL), or fetch it again",
                                printable(to.string()));
    }
    std::ifstream in(path, std::ios::binary);
    std::string content(kBeginningBytes, '\0');
    in.read(content.data(), static_cast<std::streamsize>(content.size()));
    if (in.bad() || !in.is_open()) return "";
    content.resize(static_cast<size_t>(in.gcount()));
    return download_fault(content);
}

}  // namespace dslaunch
