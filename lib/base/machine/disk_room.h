// How much room there is in folders on disks. Where it stands: folders of a config -> admission. No
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
    Bytes free;           // to this user
    Bytes reserve;        // of it, left for others: a hundredth of the disk, 1 GiB at most

    [[nodiscard]] Bytes left() const { return free > reserve ? free - reserve : Bytes{}; }
};

// One for each folder. Throws Error{kDisk} naming the first that is no folder or cannot be asked.
[[nodiscard]] std::vector<DiskRoom> read_disk_room(std::span<const std::string> folders);

}  // namespace dslaunch
