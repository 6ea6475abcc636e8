#include "base/new_files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "base/path.h"

namespace dslaunch {

namespace {

uint64_t random_number() {
    uint64_t number = 0;
    if (::getrandom(&number, sizeof number, 0) == sizeof number) return number;
    std::random_device random;
    return uint64_t{random()} << 32 | random();
}

bool is_folder(const std::string& path) {
    struct stat about {};
    return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

}  // namespace

std::optional<mode_t> mode_of(const std::string& path) {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
    return about.st_mode & 0777;
}

TemporaryFile open_temporary(const std::string& path, mode_t mode) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    constexpr int kTries = 16;
    TemporaryFile file;
    const std::optional<mode_t> earlier = mode_of(path);
    for (int i = 0; i < kTries && !file.fd.valid(); ++i) {
        file.path = fmt::format("{}.tmp-{:016x}", path, random_number());
        // The temporary file gives no rights to other users, because they may have no rights to the
        // file at PATH.
        file.fd.reset(::open(file.path.c_str(), kFlags, earlier ? *earlier & 0700 : mode));
        if (!file.fd.valid() && errno != EEXIST) break;
    }
    if (!file.fd.valid() || !earlier || ::fchmod(file.fd.get(), *earlier) == 0) return file;
    const int error_number = errno;
    ::unlink(file.path.c_str());
    file.fd.reset();
    errno = error_number;
    return file;
}

// Ignores EINVAL: a file system that returns it needs no fsync of folders. Ignores EACCES: this
// user may write to the folder, but may not open it, because opening needs the right to read.
int flush_folder(const std::string& folder) {
    const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid()) return errno == EACCES ? 0 : errno;
    return ::fsync(fd.get()) != 0 && errno != EINVAL ? errno : 0;
}

int make_folders(const std::string& folder, mode_t mode) {
    if (folder.empty() || is_folder(folder)) return 0;
    std::string trimmed = folder;
    while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.pop_back();
    const std::string parent = folder_of(trimmed);
    if (parent != trimmed)
        if (const int failed = make_folders(parent, mode); failed != 0) return failed;
    if (::mkdir(trimmed.c_str(), mode) != 0) {
        const int error_number = errno;
        // Another rank may have made the folder since the check above. For a path that ends in
        // "/.", mkdir fails although the folder now exists.
        return is_folder(trimmed) ? 0 : error_number;
    }
    return flush_folder(parent);
}

void write_file_atomically(const std::string& path, std::string_view content, mode_t mode) {
    TemporaryFile temporary = open_temporary(path, mode);
    const auto give_up = [&](const char* what, int error_number) {
        if (temporary.fd.valid()) ::unlink(temporary.path.c_str());
        fail(ExitCode::kDisk, "{}: {} this file of {} bytes failed: {}", path, what, content.size(),
             errno_text(error_number));
    };
    if (!temporary.fd.valid()) give_up("creating", errno);
    if (const int status = write_full(temporary.fd.get(), content); status != 0)
        give_up("writing", -status);
    if (::fsync(temporary.fd.get()) != 0) give_up("fsync", errno);
    if (::rename(temporary.path.c_str(), path.c_str()) != 0) give_up("renaming", errno);
    if (const int status = flush_folder(folder_of(path)); status != 0)
        fail(ExitCode::kDisk, "{}: fsync of its folder failed: {}", path, errno_text(status));
}

int replace_file(const std::string& path, std::string_view content, mode_t mode) {
    const TemporaryFile temporary = open_temporary(path, mode);
    if (!temporary.fd.valid()) return -errno;
    int status = write_full(temporary.fd.get(), content);
    if (status == 0 && ::rename(temporary.path.c_str(), path.c_str()) != 0) status = -errno;
    if (status != 0) ::unlink(temporary.path.c_str());
    return status;
}

}  // namespace dslaunch
