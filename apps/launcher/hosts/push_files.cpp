#include "launcher/hosts/push_files.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "launch/process/standard_streams.h"
#include "launch/push/push_sender.h"

namespace dslaunch::launcher {

namespace fs = std::filesystem;

std::string absolute_path(const std::string& path) {
    std::string result = fs::absolute(path).lexically_normal().string();
    if (result.size() > 1 && result.ends_with('/')) result.pop_back();
    return result;
}

std::vector<NamedFile> list_files(const std::string& file) {
    const std::string path = absolute_path(file);
    const std::string name = fs::path(path).filename().string();
    std::error_code error;
    if (!fs::is_directory(path, error)) {
        if (!fs::is_regular_file(path, error)) {
            fail(ExitCode::kInput, "{}: {}", path,
                 error ? error.message() : "is not a regular file");
        }
        return {{path, name}};
    }
    std::vector<NamedFile> found;
    fs::recursive_directory_iterator entry(path, error);
    for (; !error && entry != fs::end(entry); entry.increment(error)) {
        const std::string one = entry->path().string();
        if (entry->is_directory() && !entry->is_symlink()) continue;
        if (!entry->is_regular_file()) {
            fail(ExitCode::kInput, "{}: is not a regular file; remove it from the folder", one);
        }
        found.push_back({one, name + one.substr(path.size())});
    }
    if (error) fail(ExitCode::kInput, "{}: {}", path, error.message());
    std::sort(found.begin(), found.end(),
              [](const NamedFile& a, const NamedFile& b) { return a.below < b.below; });
    return found;
}

std::vector<launch::PushFile> list_installation() {
    std::string note;
    std::vector<launch::PushFile> files = launch::installation_files(note);
    if (!note.empty()) launch::write_last_words(fmt::format("dslaunch: {}\n", note));
    return files;
}

ScratchFolder::ScratchFolder() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base == nullptr || base[0] != '/' ? "/tmp" : base) + "/dslaunch-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) {
        fail(ExitCode::kDisk, "cannot make the folder {}: {}; set TMPDIR to another folder", path_,
             errno_text(errno));
    }
}

ScratchFolder::~ScratchFolder() {
    std::error_code ignored;  // files that cannot be removed do no harm
    fs::remove_all(path_, ignored);
}

}  // namespace dslaunch::launcher
