#include "launch/agent/device_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "launch/machine/gpu_use.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/kill_group.h"
#include "launch/process/process_tree.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kDeathMax{2'000};  // from KILL on
constexpr milliseconds kEndLook{10};
constexpr int64_t kGraceMax{600'000};

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
    const EnvironmentList environment = process_environment(pid);
    const std::string* launch_id = find_variable(environment, kLaunchIdVariable);
    if (launch_id == nullptr) return process;
    process.launch_id = *launch_id;
    const std::string* rank = find_variable(environment, "RANK");
    if (rank != nullptr) process.rank = parse_int(*rank).value_or(-1);
    return process;
}

// Returns the reason why a process must not be ended; empty: it may be ended.
std::string objection(const ProcessName& name) {
    if (name.pid <= 1 || name.start_time == 0) return "there is no such process";
    const ProcessName now = name_process(name.pid);
    if (now.start_time == 0) return "it has ended";
    if (now != name) return "it has ended, and another process has its number now";
    if (const auto owner = process_owner(name.pid); owner && *owner != ::geteuid())
        return fmt::format("it is of user {}: only its owner ends it this way", user_name(*owner));
    if (own_line().contains(name.pid)) return "it carries this very command";
    return "";
}

constexpr milliseconds kLook{10};

bool is_named(const EnvironmentList& environment, const StopJobRequest& request) {
    const std::string* launch_id = find_variable(environment, kLaunchIdVariable);
    if (launch_id == nullptr || *launch_id != request.launch_id) return false;
    if (request.before_attempt == kAllAttempts) return true;
    const std::string* attempt = find_variable(environment, kAttemptVariable);
    const auto number = attempt == nullptr ? std::nullopt : parse_int(*attempt);
    return number && *number < request.before_attempt;
}

std::string gpus_of(pid_t pid) {
    std::vector<std::string> names;
    for (const int64_t gpu : open_gpus(pid)) names.push_back(std::to_string(gpu));
    return join(names, ",");
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

EndProcessReply end_process(const EndProcessRequest& request,
                            const std::function<void()>& while_waiting) {
    EndProcessReply reply;
    reply.error = objection(request.name);
    if (!reply.error.empty()) return reply;
    const auto is_gone = [&] { return name_process(request.name.pid) != request.name; };
    const auto gone_by = [&](steady_clock::time_point limit) {
        while (!is_gone() && steady_clock::now() < limit) {
            while_waiting();
            std::this_thread::sleep_for(kEndLook);
        }
        return is_gone();
    };
    const milliseconds grace(std::clamp<int64_t>(request.grace_ms, 0, kGraceMax));
    signal_process(request.name, SIGTERM);
    signal_process(request.name, SIGCONT);  // a stopped one must be able to end
    reply.has_ended = gone_by(steady_clock::now() + grace);
    if (reply.has_ended) return reply;
    reply.was_killed = true;
    signal_process(request.name, SIGKILL);
    reply.has_ended = gone_by(steady_clock::now() + kDeathMax);
    if (!reply.has_ended)
        reply.error = fmt::format("it does not die: {}", describe_process(request.name.pid));
    return reply;
}

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
                signal_process(process.name, SIGCONT);  // a stopped one must be able to end
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
