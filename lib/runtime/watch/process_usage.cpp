#include "runtime/watch/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace dslaunch::runtime {

ProcessUsage process_usage() {
    ProcessUsage usage;
    struct rusage self {};
    ::getrusage(RUSAGE_SELF, &self);
    usage.peak_rss_bytes = int64_t{self.ru_maxrss} * 1024;
    usage.page_faults = self.ru_minflt + self.ru_majflt;
    std::ifstream statm("/proc/self/statm");
    int64_t pages = 0;
    int64_t resident = 0;
    if (statm >> pages >> resident) usage.rss_bytes = resident * ::sysconf(_SC_PAGESIZE);
    return usage;
}

}  // namespace dslaunch::runtime
