// The seam between reports and ZeRO: the memory that a rank's state takes, what goes to and from
// its disks, and what a log tells of it. Implemented in lib/zero; asked outside of a step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"

namespace dslaunch::runtime {

// Bytes that a rank holds, by kind; shared memory counts for what the ZeRO stage gives the rank.
struct MemoryAccount {
    Bytes parameters;
    Bytes gradients;
    Bytes master;
    Bytes moments;
    Bytes staging;
    Bytes swap_buffers;  // memory through which offloaded chunks pass
};

// What has gone to and from the disk tier since the start.
struct DiskTraffic {
    Bytes read;
    Bytes written;
    Duration checksum_time{0};  // of both lanes together
};

class StateAccount {
  public:
    virtual ~StateAccount() = default;

    [[nodiscard]] virtual MemoryAccount memory() const = 0;
    // This rank's; nullopt: it has nothing on disk.
    [[nodiscard]] virtual std::optional<DiskTraffic> disk_traffic() const { return std::nullopt; }
    // What the log should tell of the whole run at its end, a clause each.
    [[nodiscard]] virtual std::vector<std::string> summary() const { return {}; }
};

}  // namespace dslaunch::runtime
