// The memory that this process may still take, by each limit that the system sets it: control
// groups, the machine itself, ulimits. limits -> admission, before a job's memory is taken. No
// threads; may block as reading /proc does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch {

// A limit bounds one of these: the memory of all that run on the host or in a control group; what
// one process maps; what of it is writable and its own.
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

// Control groups of version 2 and 1, this process's own and those above it as far as it sees them,
// MemAvailable, RLIMIT_AS, RLIMIT_DATA. Swap space is not counted on. What cannot be read sets no
// limit. ROOT: where proc/ and sys/ are, for tests.
[[nodiscard]] MemoryState read_memory_state(const std::string& root = "");

// The limit of LIMITS that leaves this process the least if all LOCAL_RANKS of its host take as
// much: `left` is its share of what is the host's, or all of what is its own, RESERVE taken from
// either first. Unset: no limit is known.
[[nodiscard]] std::optional<MemoryLimit> tightest_share(const std::vector<MemoryLimit>& limits,
                                                        int local_ranks, Bytes reserve = {});

}  // namespace dslaunch
