#include "launch/machine/oom_kills.h"

#include <fmt/format.h>

#include "launch/machine/control_group.h"

namespace dslaunch::launch {

OomCount count_oom_kills(const std::string& root) {
    return {read_counter(root + "/proc/vmstat", "oom_kill"), group_oom_kills(root)};
}

std::string describe_oom(const OomCount& before, const OomCount& now) {
    if (before.group >= 0 && now.group > before.group) {
        return fmt::format("the memory limit of its control group ended {} process(es) meanwhile",
                           now.group - before.group);
    }
    if (before.machine >= 0 && now.machine > before.machine) {
        return fmt::format("the kernel's out-of-memory killer ended {} process(es) meanwhile",
                           now.machine - before.machine);
    }
    return {};
}

}  // namespace dslaunch::launch
