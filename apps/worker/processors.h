// The processors that this process may use. No state.
#pragma once

#include <sched.h>

#include <algorithm>

#include "launch/machine/machine_topology.h"

namespace dslaunch::worker {

[[nodiscard]] inline int processors_allowed() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return std::max(CPU_COUNT(&set), 1);
}

// Returns the number of processors whose time this process gets: fewer than it may use if its
// control group has a quota, as in a container. More threads would be stopped in turns and wait for
// each other.
[[nodiscard]] inline int processors_granted() {
    const int quota = launch::processors_granted("");
    return quota > 0 ? std::min(quota, processors_allowed()) : processors_allowed();
}

}  // namespace dslaunch::worker
