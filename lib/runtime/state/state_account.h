// The interface between reports and ZeRO: the memory of a rank's state, the traffic of its disks,
// and its lines in a log. Implemented in lib/zero; called outside of a step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"

namespace dslaunch::runtime {

// The bytes that a rank uses, by kind. Of memory that ranks share, only this rank's share counts.
struct MemoryAccount {
    Bytes parameters;
    Bytes gradients;
    Bytes master;
    Bytes moments;
    Bytes staging;
    Bytes swap_buffers;  // memory through which offloaded chunks pass
};

// The traffic to and from the disk tier since the start of the run.
struct DiskTraffic {
    Bytes read;
    Bytes written;
    Duration checksum_time{0};  // sum over both lanes
};

// The memory and disk traffic of a state.
class StateAccount {
  public:
    virtual ~StateAccount() = default;

    // Returns the bytes that this rank keeps, by kind. Called between steps.
    [[nodiscard]] virtual MemoryAccount memory() const = 0;
    // Returns this rank's traffic, or nullopt if it has nothing on disk.
    [[nodiscard]] virtual std::optional<DiskTraffic> disk_traffic() const = 0;
    // Returns a summary of the whole run for the end of the log, as a list of clauses.
    [[nodiscard]] virtual std::vector<std::string> summary() const = 0;
};

}  // namespace dslaunch::runtime
