#include "job/process/pinning.h"

#include <fmt/format.h>
#include <sched.h>

#include <cstdlib>
#include <string_view>

namespace dslaunch::job {

std::string pin_to_processors(const launch::WorkerEnvironment& environment, int threads) {
    // The agent has bound this process already.
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

}  // namespace dslaunch::job
