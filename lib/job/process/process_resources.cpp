#include "job/process/process_resources.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>

#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "launch/machine/machine_topology.h"
#include "runtime/memory/lending_allocator.h"

namespace dslaunch::job {

std::string pin_to_processors(const launch::WorkerEnvironment& environment, int threads) {
    // The agent has already bound this process to processors.
    if (const char* given = std::getenv(launch::kBindingVariable)) {
        return std::string_view(given) == "none" ? "not pinned"
                                                 : fmt::format("bound to processors {}", given);
    }
    const std::vector<int> allowed = launch::allowed_processors();
    if (std::ssize(allowed) != environment.local_world_size * threads) return "not pinned";
    const size_t capacity = static_cast<size_t>(allowed.back()) + 1;
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    cpu_set_t* const mine = CPU_ALLOC(capacity);
    CPU_ZERO_S(bytes, mine);
    const int first = environment.local_rank * threads;
    for (int i = first; i < first + threads; ++i)
        CPU_SET_S(allowed[static_cast<size_t>(i)], bytes, mine);
    const bool is_pinned = ::sched_setaffinity(0, bytes, mine) == 0;
    CPU_FREE(mine);
    return is_pinned ? "pinned to its own processors" : "not pinned";
}

void set_rank_threads(int ranks, int wanted) {
    if (wanted > 0) {
        at::set_num_threads(wanted);
    } else if (std::getenv(launch::kThreadsVariable) == nullptr) {
        at::set_num_threads(static_cast<int>(launch::rank_threads(ranks)));
    }
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
