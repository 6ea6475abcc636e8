// The free room of folders on disks. Data path: folders of a config -> [here] -> admission. No
// threads; may block as the file system does.
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

// Returns the room of each folder. Throws Error{kDisk} that names the first one that is not a
// folder or cannot be asked.
[[nodiscard]] std::vector<DiskRoom> read_disk_room(std::span<const std::string> folders);

}  // namespace dslaunch
