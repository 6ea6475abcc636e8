#include "launch/agent/leftover_processes.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "launch/machine/gpu_use.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/kill_group.h"
#include "launch/process/process_facts.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"
#include "launch/protocol/field_visitor.h"

namespace dslaunch::launch {

template <typename Visitor, Is<LeftProcess> M>
void fields(Visitor& visit, M& m) {
    visit(m.name.pid), visit(m.name.start_time), visit(m.command), visit(m.gpus), visit(m.ended);
}
template <typename Visitor, Is<StopJobRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.launch_id), visit(m.before_attempt);
}
template <typename Visitor, Is<StopJobReply> M>
void fields(Visitor& visit, M& m) {
    visit(m.processes);
}

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLook{10};

std::optional<int64_t> attempt_of(const EnvironmentList& environment) {
    const std::string* attempt = find_variable(environment, kAttemptVariable);
    return attempt == nullptr ? std::nullopt : parse_int(*attempt);
}

bool is_named(const EnvironmentList& environment, const StopJobRequest& request) {
    const std::string* launch_id = find_variable(environment, kLaunchIdVariable);
    if (launch_id == nullptr || *launch_id != request.launch_id) return false;
    if (request.before_attempt == kAllAttempts) return true;
    const auto attempt = attempt_of(environment);
    return attempt && *attempt < request.before_attempt;
}

std::string gpus_of(pid_t pid) {
    std::vector<std::string> names;
    for (const int64_t gpu : open_gpus(pid)) names.push_back(std::to_string(gpu));
    return join(names, ",");
}

}  // namespace

std::string encode(const StopJobRequest& request) {
    return write_fields(request);
}
std::string encode(const StopJobReply& reply) {
    return write_fields(reply);
}

StopJobRequest decode_stop_request(std::string_view payload) {
    return read_fields<StopJobRequest>(payload, "a request to end a job");
}
StopJobReply decode_stop_reply(std::string_view payload) {
    return read_fields<StopJobReply>(payload, "an answer about an ended job");
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

void begin_attempt(const EnvironmentList& environment) {
    const std::string* launch_id = find_variable(environment, kLaunchIdVariable);
    const auto attempt = attempt_of(environment);
    if (launch_id == nullptr || !attempt) return;
    const bool grouped = enter_kill_group(*launch_id, *attempt);
    log_debug("agent", "a control group of its own: {}",
              grouped ? "yes" : "no, it may not make one");
}

}  // namespace dslaunch::launch
