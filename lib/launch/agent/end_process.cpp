#include "launch/agent/end_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/text.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kDeathMax{2'000};  // time to die after KILL
constexpr milliseconds kEndLook{10};
constexpr int64_t kGraceMax{600'000};

// Returns the reason why a process must not be ended; empty if it may be ended.
std::string objection(const ProcessName& name) {
    if (name.pid <= 1 || name.start_time == 0) return "there is no such process";
    const ProcessName now = name_process(name.pid);
    if (now.start_time == 0) return "it has ended";
    if (now != name) return "it has ended, and another process now has its pid";
    if (const auto owner = process_owner(name.pid); owner && *owner != ::geteuid())
        return fmt::format("it belongs to user {}, and only its owner can end it this way",
                           user_name(*owner));
    if (own_line().contains(name.pid))
        return "it is this command itself, or a parent process of this command";
    return "";
}

}  // namespace

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
    signal_process(request.name, SIGCONT);  // a stopped process must run again before it can end
    reply.has_ended = gone_by(steady_clock::now() + grace);
    if (reply.has_ended) return reply;
    reply.was_killed = true;
    signal_process(request.name, SIGKILL);
    reply.has_ended = gone_by(steady_clock::now() + kDeathMax);
    if (!reply.has_ended)
        reply.error =
            fmt::format("it did not end after SIGKILL: {}", describe_process(request.name.pid));
    return reply;
}

}  // namespace dslaunch::launch
