// The room that there is in folders on disks. It stands between the folders of a config and
// admission: folders of a config -> admission. No threads; may block as the file system does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch {

struct DiskRoom {
    std::string folder;
    uint64_t device = 0;  // folders with the same number share the room
    Bytes free;           // bytes that this user may still take
    Bytes reserve;  // part of it that is left for others: a hundredth of the disk, 1 GiB at most

    [[nodiscard]] Bytes left() const { return free > reserve ? free - reserve : Bytes{}; }
};

// The room of each folder. Throws Error{kDisk} naming the first that is no folder or cannot be
// asked.
[[nodiscard]] std::vector<DiskRoom> read_disk_room(std::span<const std::string> folders);

}  // namespace dslaunch
