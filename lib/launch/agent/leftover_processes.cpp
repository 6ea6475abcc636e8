#include "launch/agent/leftover_processes.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <set>
#include <thread>

#include "base/text.h"
#include "launch/machine/gpu_use.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/kill_group.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{10};

bool is_named(const EnvironmentList& environment, const StopJobRequest& request) {
    const std::optional<LaunchMark> mark = launch_mark_of(environment);
    if (!mark || mark->launch_id != request.launch_id) return false;
    if (request.before_attempt == kAllAttempts) return true;
    return mark->attempt && *mark->attempt < request.before_attempt;
}

std::string gpus_of(pid_t pid) {
    std::vector<std::string> names;
    for (const int64_t gpu : open_gpus(pid)) names.push_back(std::to_string(gpu));
    return join(names, ",");
}

}  // namespace

std::vector<LeftProcess> find_leftovers(const StopJobRequest& request) {
    if (request.launch_id.empty()) return {};
    std::vector<LeftProcess> found;
    const std::set<pid_t> spared = own_line();
    const std::set<pid_t> grouped = kill_group_members(request.launch_id, request.before_attempt);
    for (const pid_t pid : all_processes()) {
        if (process_owner(pid) != ::geteuid()) continue;
        const ProcessName name = name_process(pid);
        if (name.start_time == 0 || spared.contains(pid)) continue;
        if (grouped.contains(pid) || is_named(process_environment(pid), request))
            found.push_back({name, process_command(pid), gpus_of(pid), false});
    }
    return found;
}

std::vector<LeftProcess> end_leftovers(const StopJobRequest& request,
                                       const std::function<void()>& while_waiting) {
    std::vector<LeftProcess> all;
    const auto began = steady_clock::now();
    for (;;) {
        const std::vector<LeftProcess> living = find_leftovers(request);
        const auto lives = [&](const LeftProcess& process) {
            return std::any_of(living.begin(), living.end(), [&](const LeftProcess& other) {
                return other.name == process.name;
            });
        };
        const auto time = steady_clock::now() - began;
        for (const LeftProcess& process : living) {
            const bool known = std::any_of(all.begin(), all.end(), [&](const LeftProcess& other) {
                return other.name == process.name;
            });
            if (!known) {
                all.push_back(process);
                signal_process(process.name, SIGTERM);
                signal_process(process.name, SIGCONT);  // a stopped process must run again before
                                                        // it can end
            }
            if (time >= kTermToKill) signal_process(process.name, SIGKILL);
        }
        if (time >= kTermToKill) kill_groups(request.launch_id, request.before_attempt);
        for (LeftProcess& process : all) process.ended = !lives(process);
        if (living.empty() || time > kLeftoversMax) return all;
        while_waiting();
        std::this_thread::sleep_for(kLook);
    }
}

}  // namespace dslaunch::launch
