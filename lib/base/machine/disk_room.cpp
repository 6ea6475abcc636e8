#include "base/machine/disk_room.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch {

namespace {

DiskRoom room_in(const std::string& folder) {
    struct stat about {};
    struct statvfs room {};
    if (::stat(folder.c_str(), &about) != 0 || ::statvfs(folder.c_str(), &room) != 0)
        fail(ExitCode::kDisk, "nvme_path {}: {}: give a folder that exists on every host",
             printable(folder), errno_text(errno));
    if (!S_ISDIR(about.st_mode))
        fail(ExitCode::kDisk, "nvme_path {}: is not a folder", printable(folder));
    const auto block = static_cast<int64_t>(room.f_frsize);
    const int64_t whole = static_cast<int64_t>(room.f_blocks) * block;
    return {folder, about.st_dev, Bytes{static_cast<int64_t>(room.f_bavail) * block},
            std::min(Bytes{whole / 100}, gib(1))};
}

}  // namespace

std::vector<DiskRoom> read_disk_room(std::span<const std::string> folders) {
    std::vector<DiskRoom> rooms;
    for (const std::string& folder : folders) rooms.push_back(room_in(folder));
    return rooms;
}

}  // namespace dslaunch
