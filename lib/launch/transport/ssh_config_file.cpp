#include "launch/transport/ssh_config_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

// Everybody may write /dev/null, and nobody puts anything into it.
bool is_null_device(const struct stat& status) {
    return S_ISCHR(status.st_mode) && status.st_rdev == ::makedev(1, 3);
}

}  // namespace

UniqueFd open_ssh_config(const std::string& path, SshConfigOrigin origin) {
    const bool given = origin == SshConfigOrigin::kGiven;
    // A FIFO without a writer would keep the call waiting.
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    const int error = !file.valid() || ::fstat(file.get(), &status) != 0 ? errno : 0;
    const bool is_folder = error == 0 && S_ISDIR(status.st_mode);
    if (error != 0 || is_folder) {
        if (!given) return {};
        fail(ExitCode::kUsage, "the ssh configuration {} cannot be read: {}", printable(path),
             is_folder ? "it is a folder" : errno_text(error));
    }
    if (origin == SshConfigOrigin::kSystem || is_null_device(status)) return file;
    const bool is_own = status.st_uid == 0 || status.st_uid == ::geteuid();
    const mode_t others = given ? S_IWOTH : S_IWGRP | S_IWOTH;
    if (S_ISREG(status.st_mode) && is_own && (status.st_mode & others) == 0) return file;
    fail(ExitCode::kUsage,
         "the ssh configuration {} can be written by others than you (owner {}, mode {:03o}): it "
         "is not obeyed; chmod go-w it",
         printable(path), status.st_uid, status.st_mode & 0777);
}

void require_own_ssh_config(const std::string& path) {
    if (path.empty() || path == "none") return;
    static_cast<void>(open_ssh_config(path, SshConfigOrigin::kGiven));
}

}  // namespace dslaunch::launch
