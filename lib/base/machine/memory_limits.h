// The memory that this process may still use under each limit of the system: control groups, the
// machine itself, ulimits. Data path: limits -> admission, before a job allocates its memory. No
// threads; may block as long as reading /proc does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch {

// The memory that a limit restricts: all memory in use on the host or in a control group; all
// memory that one process maps; or the writable private memory of one process.
enum class LimitOf { kHost, kAddressSpace, kPrivate };

// One limit of the system and the memory that it leaves.
struct MemoryLimit {
    std::string name;  // "memory.max of control group /job/step", "MemAvailable of /proc/meminfo"
    Bytes left;  // bytes that may still be used: the limit less the memory that counts against it,
                 // except memory that the kernel can reclaim, such as the page cache
    LimitOf of = LimitOf::kHost;
};

// All limits of this process at the time of the reading.
struct MemoryState {
    std::vector<MemoryLimit> limits;  // the limits that are set; empty if no limit is known
    Bytes held;  // anonymous and shared memory of this process, which counts against each limit
};

// Reads control groups of version 2 and 1 (this process's own and the visible ones above it),
// MemAvailable, RLIMIT_AS and RLIMIT_DATA. Swap space does not count. A value that cannot be read
// sets no limit. Tests set ROOT, the folder that holds proc/ and sys/.
[[nodiscard]] MemoryState read_memory_state(const std::string& root = "");

// Returns the limit that leaves the least memory to this process if all LOCAL_RANKS ranks of its
// host use the same amount. In the result, RESERVE has been subtracted from `left`, and a limit of
// the host has been divided by LOCAL_RANKS; a limit of the process is not divided. Returns nothing
// if no limit is known.
[[nodiscard]] std::optional<MemoryLimit> tightest_share(const std::vector<MemoryLimit>& limits,
                                                        int local_ranks, Bytes reserve = {});

// Reads the limits, and returns the bytes that this process may still use if all LOCAL_RANKS ranks
// of its host use the same amount. Returns 1 PiB if no limit is known.
[[nodiscard]] Bytes free_memory(int local_ranks);

}  // namespace dslaunch
