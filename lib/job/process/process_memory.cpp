#include "job/process/process_memory.h"

#include <malloc.h>

#include "runtime/memory/lending_allocator.h"

namespace dslaunch::job {

void return_freed_memory() {
    ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
    // Every arena takes its padding of address space, which a limit on data counts; lanes allocate
    // little.
    ::mallopt(M_ARENA_MAX, 1);
}

void keep_freed_memory() {
    ::malloc_trim(0);
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
    ::mallopt(M_TRIM_THRESHOLD, -1);
    ::mallopt(M_TOP_PAD, 4 << 20);  // counted by a limit on data
    runtime::keep_large_blocks();
}

}  // namespace dslaunch::job
