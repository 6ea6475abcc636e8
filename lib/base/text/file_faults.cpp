#include "base/text/file_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "base/path.h"
#include "base/text.h"
#include "base/text/words.h"

namespace dslaunch {
namespace {

constexpr size_t kEntriesMax = 10'000;
constexpr size_t kBeginningBytes = 4096;  // the part of a file that is examined
constexpr size_t kAnswerBytesMax = 256;   // the longest text of a server's error
constexpr const char* kCutOff =
    ": the download, copy or program that wrote it was interrupted; fetch or make it again";

namespace fs = std::filesystem;

// Returns true if OTHER can be a correction of the mistyped NAME, judging by their endings:
// `j.json` cannot stand for `b.jsonl`, but `b.json` can.
bool may_be_meant(const fs::path& name, const fs::path& other) {
    const std::string ending = name.extension().string();
    const bool is_known =
        ending.size() > 1 && ending.find_first_of("0123456789- ") == std::string::npos;
    return !is_known || other.extension() == ending || other.stem() == name.stem();
}

using Fits = std::function<bool(const std::string&)>;

// Returns the entry of PATH's folder whose name resembles PATH's name most, or is the same; "" if
// there is none. A file of a model that is split into several is no other file's mistyped name.
std::string near_entry(const fs::path& path, const Fits& fits) {
    constexpr size_t kBeginningMin = 3;
    std::error_code unreadable;
    const std::string name = path.filename().string();
    if (fs::exists(path, unreadable)) return name;
    if (name.find("-of-") != std::string::npos) return "";
    std::vector<std::string> names;
    fs::directory_iterator entry(folder_of(path.string()), unreadable);
    for (; entry != fs::directory_iterator() && names.size() < kEntriesMax;
         entry.increment(unreadable))
        if (!fits || fits((path.parent_path() / entry->path().filename()).string()))
            names.push_back(entry->path().filename().string());
    std::ranges::sort(names);
    const auto first = [&](auto is_meant) {
        const auto found = std::ranges::find_if(names, is_meant);
        return found == names.end() ? std::string() : *found;
    };
    const auto is_same = [&](const std::string& other) { return lower(other) == lower(name); };
    const auto has_ending = [&](const std::string& other) {
        return fs::path(other).stem() == name && fs::path(other).has_extension();
    };
    if (std::string found = first(is_same); !found.empty()) return found;
    if (std::string found = first(has_ending); !found.empty()) return found;
    if (name.size() < kBeginningMin) return "";
    const auto is_longer = [&](const std::string& other) { return other.starts_with(name); };
    if (std::string found = fits ? first(is_longer) : ""; !found.empty()) return found;
    std::vector<std::string> likely;
    for (const std::string& other : names)
        if (may_be_meant(name, other)) likely.push_back(other);
    return nearest(name, likely).value_or("");
}

}  // namespace

std::string near_file(const std::string& path, const Fits& fits) {
    std::error_code unreadable;
    fs::path place(path);
    if (place.empty() || fs::exists(place, unreadable)) return "";
    if (!place.has_filename()) place = place.parent_path();
    // If folders of the path do not exist either, corrects their names too, beginning with the
    // outermost folder.
    fs::path rest;
    while (place.has_relative_path() && !fs::exists(folder_of(place.string()), unreadable)) {
        rest = rest.empty() ? place.filename() : place.filename() / rest;
        place = place.parent_path();
    }
    for (;;) {
        const std::string near = near_entry(place, rest.empty() ? fits : nullptr);
        if (near.empty()) return "";
        place = place.parent_path() / near;
        const fs::path meant = rest.empty() ? place : place / rest;  // with "" it would end in /
        if (fs::exists(meant, unreadable))
            return !fits || fits(meant.string()) ? meant.string() : "";
        if (rest.empty()) return "";
        place /= *rest.begin();
        fs::path inner;
        for (auto part = std::next(rest.begin()); part != rest.end(); ++part) inner /= *part;
        rest = inner;
    }
}

std::string unexpanded_text(const std::string& path) {
    constexpr std::string_view kOfName =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string first = path.substr(0, slash);
    std::string name;
    if (first == "~") name = "HOME";
    if (first.starts_with('$')) name = first.substr(1);
    if (name.starts_with('{') && name.ends_with('}')) name = name.substr(1, name.size() - 2);
    if (name.empty() || name.find_first_not_of(kOfName) != name.npos) return "";
    const char* const value = std::getenv(name.c_str());
    return fmt::format(
        "dslaunch does not expand `{}`, and a shell expands it only {}outside quotes: write {}",
        first, first == "~" ? "at the start of a word, " : "",
        value == nullptr ? "the path itself" : shell_word(value + path.substr(slash)));
}

std::string near_file_text(const std::string& path) {
    std::error_code unreadable;
    if (fs::exists(path, unreadable)) return "";
    if (const fs::path to = fs::read_symlink(path, unreadable); !to.empty())
        return fmt::format("; it is a link to {}, which does not exist", printable(to.string()));
    const fs::path place(path);
    // PATH may have been joined to a folder.
    size_t begin = 0;
    do {
        if (const std::string text = unexpanded_text(path.substr(begin)); !text.empty())
            return "; " + text;
        begin = path.find('/', begin) + 1;
    } while (begin > 0);
    const std::string bare(trim(place.filename().string()));
    if (bare != place.filename() && !bare.empty() &&
        fs::exists(place.parent_path() / bare, unreadable))
        return fmt::format("; did you mean {}, without a blank at its end?",
                           shell_word((place.parent_path() / bare).string()));
    const std::string near = near_file(path);
    return near.empty() ? "" : fmt::format("; did you mean `{}`?", printable(near));
}

std::string split_name(const std::string& first, std::span<const std::string> words,
                       const std::string& folder) {
    constexpr size_t kWordsMax = 8;
    std::string name = first;
    for (const std::string& word : words.first(std::min(words.size(), kWordsMax))) {
        if (word.starts_with('-')) break;
        name += " " + word;
        std::error_code unreadable;
        if (fs::exists(fs::path(folder) / name, unreadable)) return name;
    }
    return "";
}

std::string missing_folder_text(const std::string& path) {
    std::error_code unreadable;
    const std::string folder = folder_of(path);
    if (std::filesystem::exists(folder, unreadable) || unreadable) return "";
    return fmt::format("the folder {} does not exist; make it: mkdir -p {}", printable(folder),
                       shell_word(folder));
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
