#include "base/machine/disk_room.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch {

namespace {

DiskSpace space_of(const struct statvfs& facts) {
    const auto block = static_cast<int64_t>(facts.f_frsize);
    return {Bytes{static_cast<int64_t>(facts.f_blocks) * block},
            Bytes{static_cast<int64_t>(facts.f_bavail) * block}};
}

DiskRoom room_in(const std::string& folder) {
    struct stat about {};
    std::optional<DiskSpace> space;
    if (::stat(folder.c_str(), &about) == 0) space = disk_space(folder);
    if (!space)
        fail(ExitCode::kDisk, "nvme_path {}: {}: give a folder that exists on every host",
             printable(folder), errno_text(errno));
    if (!S_ISDIR(about.st_mode))
        fail(ExitCode::kDisk, "nvme_path {}: is not a folder", printable(folder));
    return {folder, about.st_dev, space->free, std::min(Bytes{space->whole.value / 100}, gib(1))};
}

}  // namespace

std::optional<DiskSpace> disk_space(const std::string& path) {
    struct statvfs facts {};
    if (::statvfs(path.c_str(), &facts) != 0) return std::nullopt;
    return space_of(facts);
}

std::optional<DiskSpace> disk_space(int fd) {
    struct statvfs facts {};
    if (::fstatvfs(fd, &facts) != 0) return std::nullopt;
    return space_of(facts);
}

std::vector<DiskRoom> read_disk_room(std::span<const std::string> folders) {
    std::vector<DiskRoom> rooms;
    for (const std::string& folder : folders) rooms.push_back(room_in(folder));
    return rooms;
}

}  // namespace dslaunch
