// The memory that this process may still take, by each limit of the system: control groups, the
// machine itself, ulimits. limits -> admission, before a job's memory is taken. No threads; may
// block as reading /proc does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch {

// A limit bounds one of these: the memory of everything that runs on the host or in a control
// group; the memory that one process maps; its writable private memory.
enum class LimitOf { kHost, kAddressSpace, kPrivate };

struct MemoryLimit {
    std::string name;  // "memory.max of control group /job/step", "MemAvailable of /proc/meminfo"
    Bytes left;  // bytes that may still be taken: the limit, less what is held under it and would
                 // not be given back for the asking, as the page cache is
    LimitOf of = LimitOf::kHost;
};

struct MemoryState {
    std::vector<MemoryLimit> limits;  // the limits that are set; empty: none is known
    Bytes held;  // anonymous and shared memory of this process, which counts under all of them
};

// Reads control groups of version 2 and 1 (this process's own and those above it that it sees),
// MemAvailable, RLIMIT_AS and RLIMIT_DATA. Swap space does not count. A value that cannot be read
// sets no limit. ROOT: the folder that holds proc/ and sys/, for tests.
[[nodiscard]] MemoryState read_memory_state(const std::string& root = "");

// Returns the limit that leaves this process the least if all LOCAL_RANKS of its host take as much.
// After RESERVE is taken from the limit, `left` is this process's share of a host's limit, or all
// of its own limit. Unset: no limit is known.
[[nodiscard]] std::optional<MemoryLimit> tightest_share(const std::vector<MemoryLimit>& limits,
                                                        int local_ranks, Bytes reserve = {});

}  // namespace dslaunch
