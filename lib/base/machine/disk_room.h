// The free space of the disks on which folders are. Data path: folders of a config -> [here] ->
// admission. No threads; may block as long as the file system does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch {

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
