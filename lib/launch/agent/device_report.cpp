#include "launch/agent/device_report.h"

#include <unistd.h>

#include <map>
#include <optional>

#include "base/text.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

int64_t age_of(const ProcessName& name) {
    const std::string uptime = text_or_empty("/proc/uptime");
    const auto seconds = parse_double(uptime.substr(0, uptime.find(' ')));
    if (name.start_time == 0 || !seconds) return -1;
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    return static_cast<int64_t>(*seconds - static_cast<double>(name.start_time) / ticks);
}

DeviceProcess describe(pid_t pid) {
    DeviceProcess process;
    process.name = name_process(pid);
    if (process.name.start_time == 0) return process;
    const std::optional<uid_t> owner = process_owner(pid);
    if (owner) process.user = user_name(*owner);
    process.is_own = owner && *owner == ::geteuid();
    process.command = process_command(pid);
    process.age_s = age_of(process.name);
    if (!process.is_own) return process;
    if (const auto mark = launch_mark_of(process_environment(pid))) {
        process.launch_id = mark->launch_id;
        process.rank = mark->rank;
    }
    return process;
}

}  // namespace

DeviceUseReport report_devices(const DeviceUseRequest& request) {
    GpuUse use = look_at_gpus();
    std::map<int64_t, std::vector<GpuHold>> held;  // by pid
    if (request.pid > 0) held[request.pid] = {};
    for (const GpuHold& hold : use.holds) held[hold.pid].push_back(hold);
    DeviceUseReport report{std::move(use.gpus), {}, std::move(use.note)};
    for (auto& [pid, holds] : held) {
        report.processes.push_back(describe(static_cast<pid_t>(pid)));
        report.processes.back().name.pid = static_cast<pid_t>(pid);
        report.processes.back().holds = std::move(holds);
    }
    return report;
}

}  // namespace dslaunch::launch
