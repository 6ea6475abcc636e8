#include "launch/agent/device_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <thread>

#include "base/text.h"
#include "launch/machine/user_name.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/process_facts.h"
#include "launch/process/spawn.h"
#include "launch/process/text_or_empty.h"
#include "launch/protocol/field_visitor.h"

namespace dslaunch::launch {

template <typename Visitor, Is<ProcessName> M>
void fields(Visitor& visit, M& m) {
    visit(m.pid), visit(m.start_time);
}
template <typename Visitor, Is<Gpu> M>
void fields(Visitor& visit, M& m) {
    visit(m.index), visit(m.name), visit(m.memory_bytes), visit(m.used_bytes), visit(m.uuid);
    visit(m.driver), visit(m.ecc_errors), visit(m.pcie_generation), visit(m.pcie_lanes);
    visit(m.pcie_lanes_max), visit(m.nvlinks);
}
template <typename Visitor, Is<GpuHold> M>
void fields(Visitor& visit, M& m) {
    visit(m.gpu), visit(m.pid), visit(m.bytes);
}
template <typename Visitor, Is<DeviceProcess> M>
void fields(Visitor& visit, M& m) {
    fields(visit, m.name);
    visit(m.user), visit(m.is_own), visit(m.command), visit(m.age_s), visit(m.launch_id);
    visit(m.rank), visit(m.holds);
}
template <typename Visitor, Is<DeviceUseRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.pid);
}
template <typename Visitor, Is<DeviceUseReport> M>
void fields(Visitor& visit, M& m) {
    visit(m.gpus), visit(m.processes), visit(m.note);
}
template <typename Visitor, Is<EndProcessRequest> M>
void fields(Visitor& visit, M& m) {
    fields(visit, m.name);
    visit(m.grace_ms);
}
template <typename Visitor, Is<EndProcessReply> M>
void fields(Visitor& visit, M& m) {
    visit(m.has_ended), visit(m.was_killed), visit(m.error);
}

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kUptimeBytesMax = 256;
constexpr milliseconds kDeathMax{2'000};  // from KILL on
constexpr milliseconds kEndLook{10};
constexpr int64_t kGraceMax{600'000};

int64_t age_of(const ProcessName& name) {
    const std::string uptime = text_or_empty("/proc/uptime", kUptimeBytesMax);
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

// The reason why a process must not be ended; empty: none.
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

}  // namespace

std::string encode(const DeviceUseRequest& message) {
    return write_fields(message);
}
std::string encode(const DeviceUseReport& message) {
    return write_fields(message);
}
std::string encode(const EndProcessRequest& message) {
    return write_fields(message);
}
std::string encode(const EndProcessReply& message) {
    return write_fields(message);
}
DeviceUseRequest decode_device_request(std::string_view payload) {
    return read_fields<DeviceUseRequest>(payload, "a question about devices");
}
DeviceUseReport decode_device_report(std::string_view payload) {
    return read_fields<DeviceUseReport>(payload, "an answer about devices");
}
EndProcessRequest decode_end_request(std::string_view payload) {
    return read_fields<EndProcessRequest>(payload, "a request to end a process");
}
EndProcessReply decode_end_reply(std::string_view payload) {
    return read_fields<EndProcessReply>(payload, "an answer about an ended process");
}

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

}  // namespace dslaunch::launch
