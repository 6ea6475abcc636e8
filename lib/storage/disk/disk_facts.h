// The disk under a folder, as the kernel describes it: its name for good, its length, and what
// writing does to it.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/clock.h"

namespace dslaunch::storage {

struct DiskFacts {
    // "<host>:<serial number or UUID>", or "<host>:dev-<major>-<minor>" where it has none or there
    // is no disk (tmpfs, network); the host, since homes are shared and not every serial number is
    // of one disk only.
    std::string id;
    std::string device;  // "nvme0n1"; empty where there is no disk
    Bytes capacity;      // the whole disk's bytes; 0: not known
};

// Throws Error{kDisk}: no such folder.
[[nodiscard]] DiskFacts disk_facts(const std::string& folder);

// A disk of CAPACITY is written full so often in a day at the pace of WRITTEN in OVER: the unit in
// which makers rate endurance (DWPD, commonly 0.3 to 3). REQUIRES: over and capacity > 0.
[[nodiscard]] double drive_writes_per_day(Bytes written, Duration over, Bytes capacity);

// "12.3 MB a step written to /nvme; at this rate 0.8 drive writes a day of its 1.9 TB", in powers
// of ten as makers count. CAPACITY 0: not known. REQUIRES: step > 0.
[[nodiscard]] std::string wear_text(const std::string& folder, Bytes written, Duration step,
                                    Bytes capacity);

}  // namespace dslaunch::storage
