#include "launch/process/resource_limit.h"

#include <limits>

#include "base/log.h"

namespace dslaunch::launch {

int64_t soft_limit(decltype(RLIMIT_NOFILE) resource) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
    return static_cast<int64_t>(limit.rlim_cur);
}

size_t raise_descriptor_limit(size_t wanted) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<size_t>::max();
    if (limit.rlim_cur >= wanted || limit.rlim_cur == limit.rlim_max) return limit.rlim_cur;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return before;
    log_info("launch", "open files: the limit of {} is raised to {}, {} may be needed", before,
             limit.rlim_cur, wanted);
    return limit.rlim_cur;
}

}  // namespace dslaunch::launch
