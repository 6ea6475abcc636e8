// The disk that stores a folder, as the kernel describes it: a permanent name, its size, and how
// fast writing wears it out.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/clock.h"

namespace dslaunch::storage {

// The facts of one disk.
struct DiskFacts {
    // Identifies the disk: "<host>:<serial number or UUID>". If the disk has neither, or there is
    // no disk (tmpfs, network), "<host>:dev-<major>-<minor>". The text contains the host because
    // home folders are shared and some serial numbers belong to several disks.
    std::string id;
    std::string device;  // "nvme0n1"; empty if there is no disk
    Bytes capacity;      // the whole disk's bytes; 0 if not known
};

// Returns the facts of the disk that stores FOLDER. Throws Error{kDisk} if there is no such folder.
[[nodiscard]] DiskFacts disk_facts(const std::string& folder);

// Returns how many times a day a disk of CAPACITY would be filled by writing WRITTEN bytes in each
// period of length OVER. Manufacturers rate endurance in this unit (DWPD, commonly 0.3 to 3).
// REQUIRES: over and capacity > 0.
[[nodiscard]] double drive_writes_per_day(Bytes written, Duration over, Bytes capacity);

// Returns "12.3 MB a step written to /nvme; at this rate 0.8 drive writes a day of its 1.9 TB", in
// powers of ten as manufacturers count. CAPACITY is 0 if it is not known. REQUIRES: step > 0.
[[nodiscard]] std::string wear_text(const std::string& folder, Bytes written, Duration step,
                                    Bytes capacity);

}  // namespace dslaunch::storage
