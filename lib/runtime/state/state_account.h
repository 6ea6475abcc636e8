// The seam between reports and ZeRO: the memory that a rank's state takes, the traffic of its
// disks, and its lines in a log. Implemented in lib/zero; called outside of a step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"

namespace dslaunch::runtime {

// Bytes that a rank holds, by kind. Shared memory counts as the share that the ZeRO stage gives the
// rank.
struct MemoryAccount {
    Bytes parameters;
    Bytes gradients;
    Bytes master;
    Bytes moments;
    Bytes staging;
    Bytes swap_buffers;  // memory through which offloaded chunks pass
};

// The traffic to and from the disk tier since the start.
struct DiskTraffic {
    Bytes read;
    Bytes written;
    Duration checksum_time{0};  // sum over both lanes
};

class StateAccount {
  public:
    virtual ~StateAccount() = default;

    [[nodiscard]] virtual MemoryAccount memory() const = 0;
    // Returns this rank's traffic, nullopt if it has nothing on disk.
    [[nodiscard]] virtual std::optional<DiskTraffic> disk_traffic() const = 0;
    // Returns a summary of the whole run for the log's end, a clause each.
    [[nodiscard]] virtual std::vector<std::string> summary() const = 0;
};

}  // namespace dslaunch::runtime
