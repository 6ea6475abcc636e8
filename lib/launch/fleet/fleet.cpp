#include "launch/fleet/fleet.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "launch/fleet/agent_end.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTick{500};
constexpr size_t kKeptDiagnostics = 20;
constexpr size_t kProblemIndent = 6;

double seconds(milliseconds time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

Fleet::Fleet(const std::vector<HostAddress>& hosts, Transport& transport, int signal_fd)
    : transport_(transport), signal_fd_(signal_fd), nodes_(hosts.size()) {
    for (size_t i = 0; i < hosts.size(); ++i) nodes_[i].address = hosts[i];
}

bool Fleet::all(const std::function<bool(const Node&)>& predicate) const {
    return std::all_of(nodes_.begin(), nodes_.end(), predicate);
}

size_t Fleet::bad_count() const {
    return static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.end(),
                                             [](const Node& n) { return !n.error.empty(); }));
}

void Fleet::connect(milliseconds limit, bool want_binary_hash) {
    std::vector<HostAddress> hosts;
    for (const Node& node : nodes_) hosts.push_back(node.address);
    started_at_ = steady_clock::now();
    next_ping_ = started_at_ + kPingInterval;
    for (Node& node : nodes_) node.last_byte = started_at_;
    transport_.start(hosts);
    Hello hello;
    hello.want_binary_hash = want_binary_hash;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        hello.node_name = nodes_[i].address.name;
        send(i, FrameKind::kHello, encode(hello));
    }
    const auto decided = [](const Node& node) { return node.greeted || node.ended; };
    pump([&] { return all(decided); }, started_at_ + limit);
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (decided(nodes_[i])) continue;
        lose(i, interrupted() ? "interrupted before it answered"
                              : fmt::format("no agent said hello within {} s", seconds(limit)));
    }
}

bool Fleet::pump(const std::function<bool()>& done, Time deadline) {
    for (;;) {
        const auto left = deadline - steady_clock::now();
        const auto timeout =
            left > kTick ? kTick : std::chrono::ceil<milliseconds>(std::max(left, left.zero()));
        const int interrupts_before = interrupts_;
        for (const TransportEvent& event :
             transport_.wait(done() ? milliseconds(0) : timeout, signal_fd_)) {
            handle_event(event);
        }
        take_signals();
        keep_in_touch();
        if (done()) return true;
        if (steady_clock::now() >= deadline || interrupts_ > interrupts_before) return false;
    }
}

void Fleet::send(size_t host, FrameKind kind, std::string payload) {
    if (!nodes_[host].ended) transport_.send(host, encode(Frame{kind, std::move(payload)}));
}

void Fleet::lose(size_t host, const std::string& cause) {
    Node& node = nodes_[host];
    if (node.error.empty()) node.error = cause;
    if (node.ended) return;
    node.ended = true;
    transport_.abandon(host);
}

void Fleet::handle_event(const TransportEvent& event) {
    Node& node = nodes_[event.host];
    if (event.kind == TransportEvent::Kind::kEnded) return handle_end(event);
    if (event.kind == TransportEvent::Kind::kDiagnostic) {
        node.diagnostics.push_back(printable(event.text));
        if (node.diagnostics.size() > kKeptDiagnostics) {
            node.diagnostics.erase(node.diagnostics.begin());
        }
        return;
    }
    if (node.ended) return;
    node.last_byte = steady_clock::now();
    try {
        node.frames.append(event.text);
        while (const auto frame = node.frames.next()) {
            handle_frame(event.host, *frame);
            if (node.ended) return;
        }
    } catch (const Error& error) {
        node.misunderstood = true;
        lose(event.host, fmt::format("its agent speaks nonsense: {}", error.what()));
    }
}

void Fleet::handle_frame(size_t host, const Frame& frame) {
    Node& node = nodes_[host];
    switch (frame.kind) {
        case FrameKind::kAgentHello:
            node.hello = decode<AgentHello>(frame.payload);
            node.greeted = true;
            node.greeted_at = steady_clock::now();
            if (node.hello.protocol_version != kAgentProtocolVersion) {
                lose(host, fmt::format("its dslaunch {} speaks protocol {}, this one {} speaks {}; "
                                       "`dslaunch push` sends this one",
                                       printable(node.hello.version), node.hello.protocol_version,
                                       DSL_VERSION, kAgentProtocolVersion));
            }
            return;
        case FrameKind::kAskedToEnd:  // a scheduler's signal to the agent, which is meant for us
            ++interrupts_;
            return;
        case FrameKind::kPong:
            return;
        case FrameKind::kGone:
            node.gone = true;
            return;
        case FrameKind::kProblem:
            if (node.error.empty()) {
                node.error =
                    printable_lines(decode<AgentProblem>(frame.payload).message, kProblemIndent);
            }
            return;
        default:
            if (on_frame_) on_frame_(host, frame);
    }
}

void Fleet::handle_end(const TransportEvent& event) {
    Node& node = nodes_[event.host];
    if (node.ended) return;
    node.ended = true;
    node.exit_status = event.exit_status;
    if (node.gone || stopping_ || !node.error.empty()) return;
    node.error = describe_agent_end(event, node.greeted, node.diagnostics);
}

void Fleet::take_signals() {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
        ++interrupts_;
    }
}

void Fleet::keep_in_touch() {
    const auto now = steady_clock::now();
    const bool ping = now >= next_ping_;
    if (ping) next_ping_ = now + kPingInterval;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        const Node& node = nodes_[i];
        if (node.ended || node.gone || !node.greeted) continue;
        if (ping) send(i, FrameKind::kPing);
        if (now - node.last_byte > kSilenceMax) {
            lose(i, fmt::format("nothing heard from its agent for {} s", seconds(kSilenceMax)));
        }
    }
}

void Fleet::stop() {
    stopping_ = true;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        send(i, FrameKind::kStop);
        transport_.close_input(i);
    }
    const auto over = [](const Node& node) { return node.ended || node.gone; };
    const Time limit = steady_clock::now() + kUnkillableMax + kFarewellMax;
    // A first Ctrl-C may be what brought us here; one more gives the rest up.
    pump([&] { return all(over); }, limit);
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!over(nodes_[i])) lose(i, "its agent did not end");
    }
}

}  // namespace dslaunch::launch
