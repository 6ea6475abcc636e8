// The processors that this process may use. No state.
#pragma once

#include <sched.h>

#include <algorithm>

namespace dslaunch::worker {

[[nodiscard]] inline int processors_allowed() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return std::max(CPU_COUNT(&set), 1);
}

}  // namespace dslaunch::worker
