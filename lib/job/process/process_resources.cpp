#include "job/process/process_resources.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>

#include <cstdlib>
#include <string_view>

#include "runtime/memory/lending_allocator.h"

namespace dslaunch::job {

std::string pin_to_processors(const launch::WorkerEnvironment& environment, int threads) {
    // The agent has already bound this process to processors.
    if (const char* given = std::getenv(launch::kBindingVariable)) {
        return std::string_view(given) == "none" ? "not pinned"
                                                 : fmt::format("bound to processors {}", given);
    }
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return "not pinned";
    const int count = CPU_COUNT(&allowed);
    if (count != environment.local_world_size * threads) return "not pinned";
    cpu_set_t mine;
    CPU_ZERO(&mine);
    int seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        if (seen / threads == environment.local_rank) CPU_SET(cpu, &mine);
        ++seen;
    }
    if (::sched_setaffinity(0, sizeof mine, &mine) != 0) return "not pinned";
    return "pinned to its own processors";
}

void return_freed_memory() {
    ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
    // Each arena of malloc reserves address space, which counts toward a limit on a process's data.
    // One arena is enough, because lanes allocate little.
    ::mallopt(M_ARENA_MAX, 1);
}

void keep_freed_memory() {
    ::malloc_trim(0);
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
    ::mallopt(M_TRIM_THRESHOLD, -1);
    ::mallopt(M_TOP_PAD, 4 << 20);  // a limit on data counts it
    runtime::keep_large_blocks();
}

}  // namespace dslaunch::job
