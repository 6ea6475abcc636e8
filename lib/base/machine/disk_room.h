// The size and the free space of disks. Data path: folders of a config -> [here] -> admission. Code
// that writes files also asks for the free space, before it writes or for a message on a full disk.
// No threads; may block as long as the file system does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch {

// The space of a file system.
struct DiskSpace {
    Bytes whole;  // 0 if the file system has no size limit (ramfs, some overlays); FREE is then 0
    Bytes free;   // bytes that this user may still write
};

// Returns the space of the file system that has the file or folder PATH, or the open file FD.
// Returns nothing, with the cause in errno, if the file system gives no answer.
[[nodiscard]] std::optional<DiskSpace> disk_space(const std::string& path);
[[nodiscard]] std::optional<DiskSpace> disk_space(int fd);

// The free space on the disk that holds FOLDER.
struct DiskRoom {
    std::string folder;
    uint64_t device = 0;  // folders with the same number share the space
    Bytes free;           // bytes that this user may still write
    Bytes reserve;  // the part of FREE that is left for others: 1 % of the disk, at most 1 GiB

    // Returns the bytes that a job may use.
    [[nodiscard]] Bytes left() const { return free > reserve ? free - reserve : Bytes{}; }
};

// Returns the free space of each folder. Throws Error{kDisk} that names the first path that is not
// a folder or whose disk gives no answer.
[[nodiscard]] std::vector<DiskRoom> read_disk_room(std::span<const std::string> folders);

}  // namespace dslaunch
