#include "storage/checkpoint/file_tree.h"

#include <cerrno>

#include "base/error.h"
#include "base/path.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

std::string_view advice(int error_number) {
    switch (error_number) {
        case ENOSPC:
            return "; free some space, or give an --output on another disk";
        case EDQUOT:
            return "; your quota there is used up: remove files or ask for more";
        case EROFS:
            return "; the file system is mounted read-only, which also happens after disk errors";
        case EIO:
            return "; the disk or the connection to it failed: see the kernel's log (dmesg)";
        case EACCES:
        case EPERM:
            return "; this user may not write there: give another --output";
        case ENOENT:
            return "; a folder of its path was removed";
        default:
            return "";
    }
}

}  // namespace

void fail_file(const FileFailure& failure) {
    std::string bytes;
    if (failure.need > Bytes{0}) bytes = fmt::format(" ({} needed)", to_text(failure.need));
    if (failure.error_number == ENOSPC || failure.error_number == EDQUOT)
        bytes += fmt::format("; {} are free there", to_text(failure.free));
    fail(ExitCode::kDisk, "{}: cannot {}{}: {}{}", printable(failure.path), failure.doing, bytes,
         errno_text(failure.error_number), advice(failure.error_number));
}

void FileTree::make_folders(const std::string& path) {
    if (path.empty() || path == "/" || list(path)) return;
    const size_t slash = path.find_last_of('/');
    if (slash == path.size() - 1) return make_folders(path.substr(0, slash));
    const std::string parent = folder_of(path);
    make_folders(parent);
    make_folder(path);
    sync_folder(parent);
}

}  // namespace dslaunch::storage
