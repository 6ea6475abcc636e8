// The processors that this process may use. No state.
#pragma once

#include <sched.h>

#include <algorithm>

#include "launch/machine/machine_topology.h"

namespace dslaunch::worker {

// Returns the number of processors that this process may run on; at least 1.
[[nodiscard]] inline int processors_allowed() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return std::max(CPU_COUNT(&set), 1);
}

// Returns the number of processors whose full time this process gets. In a container, the number
// may be smaller than the number of allowed processors, because the control group can have a quota.
// More threads than the returned number would be paused in turns and wait for each other.
[[nodiscard]] inline int processors_granted() {
    const int quota = launch::processors_granted("");
    return quota > 0 ? std::min(quota, processors_allowed()) : processors_allowed();
}

}  // namespace dslaunch::worker
