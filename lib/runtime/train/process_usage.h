// What this process uses, as the kernel counts it.
#pragma once

#include <cstdint>

namespace dslaunch::runtime {

struct ProcessUsage {
    int64_t rss_bytes = 0;       // resident now, shared arenas included in every rank
    int64_t peak_rss_bytes = 0;  // the largest so far
    int64_t page_faults = 0;     // minor and major, since the start
};

[[nodiscard]] ProcessUsage process_usage();

}  // namespace dslaunch::runtime
