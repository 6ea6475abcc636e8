// The disk under a folder, as the kernel describes it: its lasting name, its length, and how much
// writing wears it.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/clock.h"

namespace dslaunch::storage {

struct DiskFacts {
    // "<host>:<serial number or UUID>", or "<host>:dev-<major>-<minor>" without such a number or
    // without a disk (tmpfs, network). It has the host because homes are shared and some serial
    // numbers belong to several disks.
    std::string id;
    std::string device;  // "nvme0n1"; empty: there is no disk
    Bytes capacity;      // the whole disk's bytes; 0: not known
};

// Throws Error{kDisk} if there is no such folder.
[[nodiscard]] DiskFacts disk_facts(const std::string& folder);

// Returns how often a day a disk of CAPACITY is written full if WRITTEN is written in OVER: makers
// rate endurance in this unit (DWPD, commonly 0.3 to 3). REQUIRES: over and capacity > 0.
[[nodiscard]] double drive_writes_per_day(Bytes written, Duration over, Bytes capacity);

// Returns "12.3 MB a step written to /nvme; at this rate 0.8 drive writes a day of its 1.9 TB", in
// powers of ten as makers count. CAPACITY 0: not known. REQUIRES: step > 0.
[[nodiscard]] std::string wear_text(const std::string& folder, Bytes written, Duration step,
                                    Bytes capacity);

}  // namespace dslaunch::storage
