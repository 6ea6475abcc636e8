// The resources that this process has used, as counted by the kernel.
#pragma once

#include <cstdint>

namespace dslaunch::runtime {

// The memory and page faults of this process.
struct ProcessUsage {
    int64_t rss_bytes = 0;       // resident now; every rank counts shared arenas
    int64_t peak_rss_bytes = 0;  // largest so far
    int64_t page_faults = 0;     // minor and major faults since the start
};

// Reads the usage from the kernel. Any thread may call it.
[[nodiscard]] ProcessUsage process_usage();

}  // namespace dslaunch::runtime
