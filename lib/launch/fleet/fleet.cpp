#include "launch/fleet/fleet.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTick{500};
// A scheduler may send a signal both to an agent and to this process. If the two signals arrive
// within this time, they count as one request to end.
constexpr milliseconds kSameWishMax{3'000};
constexpr size_t kKeptDiagnostics = 20;
constexpr size_t kSaidMax = 300;

// Returns the reason why an agent is gone, in words for the user; never empty. EVENT: the kEnded
// event of its host. GREETED: the agent had said hello. DIAGNOSTICS: the agent's last lines on
// stderr, printable.
std::string describe_agent_end(const TransportEvent& event, bool greeted,
                               const std::vector<std::string>& diagnostics) {
    std::string cause = printable_lines(event.text, kCauseIndent);
    if (cause.empty() && event.exit_status == kNoProgram && !diagnostics.empty()) {
        cause = diagnostics.back();  // the line of the shell or the loader
    }
    if (!greeted && event.exit_status == kNoProgram) {
        return fmt::format(
            "there is no dslaunch at {}, or a library that it needs is missing (exit 127{}{}); "
            "`dslaunch push` with the same host options copies both there",
            launcher_path(), cause.empty() ? "" : ": ", cause);
    }
    if (!cause.empty()) return cause;
    return fmt::format("its agent ended with {}{}", event.exit_status,
                       diagnostics.empty() ? "" : ": " + diagnostics.back());
}

}  // namespace

bool Fleet::Node::has_foreign_program() const {
    constexpr int kNotRun = 126;  // a shell's exit code for a program that its kernel refuses
    return !greeted && exit_status == kNotRun &&
           std::ranges::any_of(diagnostics, [](const std::string& line) {
               return line.find("xec format error") != std::string::npos;  // ENOEXEC
           });
}

std::string describe_other_processor(const AgentHello& hello) {
    utsname own{};
    ::uname(&own);
    if (hello.processor.empty() || hello.processor == own.machine) return {};
    return fmt::format(
        "its processor and its dslaunch are {}, but this machine's are {}: start the job on a host "
        "whose processor is of the same kind as the processors of all its hosts (from here, only "
        "dslaunch exec, stop and push FILE work)",
        printable(hello.processor), own.machine);
}

Fleet::Fleet(const std::vector<HostAddress>& hosts, Transport& transport, int signal_fd)
    : transport_(transport), signal_fd_(signal_fd), nodes_(hosts.size()) {
    for (size_t i = 0; i < hosts.size(); ++i) nodes_[i].address = hosts[i];
}

bool Fleet::all(const std::function<bool(const Node&)>& predicate) const {
    return std::all_of(nodes_.begin(), nodes_.end(), predicate);
}

bool Fleet::heard_all_since(Time time) const {
    return all([&](const Node& node) { return node.ended || node.last_byte > time; });
}

size_t Fleet::bad_count() const {
    return static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.end(),
                                             [](const Node& n) { return !n.error.empty(); }));
}

void Fleet::fail_if_bad(const std::string& what, ExitCode code, const std::string& advice) const {
    const size_t count = bad_count();
    if (count == 0 || interrupted()) return;
    std::vector<std::string> causes;
    for (const Node& node : nodes_) causes.push_back(node.error);
    std::string message;
    for (const EqualTexts& cause : group_equal(causes)) {
        if (cause.text.empty()) continue;
        std::vector<std::string> names;
        for (const size_t host : cause.hosts) names.push_back(nodes_[host].address.name);
        message += fmt::format("\n  {}: {}", join(names, ", "), cause.text);
    }
    if (!advice.empty()) message += "\n" + advice;
    fail(code, "{} {} of {}:{}", what, count, counted(std::ssize(nodes_), "host"), message);
}

void Fleet::connect(milliseconds limit, bool want_binary_hash) {
    std::vector<HostAddress> hosts;
    for (const Node& node : nodes_) hosts.push_back(node.address);
    started_at_ = steady_clock::now();
    transport_.start(hosts);
    const auto now = steady_clock::now();
    next_ping_ = now + kPingInterval;
    for (Node& node : nodes_) node.last_byte = now;
    Hello hello;
    hello.want_binary_hash = want_binary_hash;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        hello.node_name = nodes_[i].address.name;
        send(i, FrameKind::kHello, encode(hello));
    }
    const auto decided = [](const Node& node) { return node.greeted || node.ended; };
    pump([&] { return all(decided); }, now + limit);
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (decided(nodes_[i])) continue;
        lose(i, interrupted()
                    ? "interrupted before it answered"
                    : fmt::format("no agent answered within {} s", to_milliseconds(limit) / 1000));
    }
}

bool Fleet::pump(const std::function<bool()>& done, Time deadline) {
    has_given_up_ = false;
    for (;;) {
        const auto left = deadline - steady_clock::now();
        const auto timeout =
            left > kTick ? kTick : std::chrono::ceil<milliseconds>(std::max(left, left.zero()));
        if (const auto limit = listener_->pause(timeout)) {
            for (const TransportEvent& event :
                 transport_.wait(done() ? milliseconds(0) : *limit, signal_fd_)) {
                handle_event(event);
            }
        }
        take_signals();
        keep_in_touch();
        if (done()) return true;
        if (has_given_up_ || steady_clock::now() >= deadline) return false;
    }
}

void Fleet::send(size_t host, FrameKind kind, std::string payload) {
    if (!nodes_[host].ended) transport_.send(host, encode(Frame{kind, std::move(payload)}));
}

void Fleet::send_all(FrameKind kind, const std::string& payload) {
    for (size_t i = 0; i < nodes_.size(); ++i) send(i, kind, payload);
}

void Fleet::blame(size_t host, const std::string& cause) {
    if (nodes_[host].error.empty()) nodes_[host].error = cause;
}

void Fleet::lose(size_t host, const std::string& cause) {
    Node& node = nodes_[host];
    blame(host, cause);
    if (node.ended) return;
    note_end(node);
    transport_.abandon(host);
    listener_->host_ended(host, true);
}

void Fleet::note_end(Node& node) {
    node.ended = true;
    if (node.greeted && !node.gone && node.exit_status < 0) node.cut_off_at = steady_clock::now();
}

void Fleet::handle_event(const TransportEvent& event) {
    Node& node = nodes_[event.host];
    if (event.kind == TransportEvent::Kind::kEnded) return handle_end(event);
    if (event.kind == TransportEvent::Kind::kDiagnostic) {
        node.diagnostics.push_back(printable(event.text));
        if (node.diagnostics.size() > kKeptDiagnostics) {
            node.diagnostics.erase(node.diagnostics.begin());
        }
        if (node.greeted) listener_->take_diagnostic(event.host, node.diagnostics.back());
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
        lose(event.host, fmt::format("its agent sent data that cannot be read: {}", error.what()));
    }
}

void Fleet::handle_frame(size_t host, const Frame& frame) {
    Node& node = nodes_[host];
    switch (frame.kind) {
        case FrameKind::kAgentHello:
            return handle_hello(host, frame);
        case FrameKind::kAskedToEnd: {
            // A scheduler signals every node and the launcher; all these signals are one request to
            // end.
            if (interrupts_ > 0) return;
            const auto request = decode<SignalRequest>(frame.payload);
            agent_asked_at_ = steady_clock::now();
            return wish_end(fmt::format("host {} received {}", node.address.name,
                                        signal_text(static_cast<int>(request.signal_number))));
        }
        case FrameKind::kPong:
            return;
        case FrameKind::kGone:
            node.gone = true;
            // The agent gave up by itself and ended everything that it had started.
            if (!is_stopping_ && !node.error.empty()) lose(host, node.error);
            return;
        case FrameKind::kProblem:
            return handle_problem(host, frame);
        default:
            return listener_->take_frame(host, frame);
    }
}

void Fleet::handle_hello(size_t host, const Frame& frame) {
    Node& node = nodes_[host];
    node.hello = decode<AgentHello>(frame.payload);
    node.greeted = true;
    node.greeted_at = steady_clock::now();
    if (node.hello.protocol_version == kAgentProtocolVersion) return listener_->host_greeted(host);
    lose(host, fmt::format("its dslaunch {} uses protocol {}, but this machine's dslaunch ({}) "
                           "uses {}; `dslaunch push` copies this machine's dslaunch to that host",
                           printable(node.hello.version), node.hello.protocol_version, DSL_VERSION,
                           kAgentProtocolVersion));
}

void Fleet::handle_problem(size_t host, const Frame& frame) {
    const auto problem = decode<AgentProblem>(frame.payload);
    const std::string message = printable_lines(problem.message, kCauseIndent);
    blame(host, message);
    Node& node = nodes_[host];
    if (!node.problem_code) node.problem_code = static_cast<ExitCode>(problem.code);
    listener_->take_problem(host, message);
}

void Fleet::handle_end(const TransportEvent& event) {
    Node& node = nodes_[event.host];
    if (node.ended) return;
    node.exit_status = event.exit_status;
    if (node.gone || is_stopping_) {
        note_end(node);
        return listener_->host_ended(event.host, false);
    }
    std::string cause = describe_agent_end(event, node.greeted, node.diagnostics);
    if (node.has_foreign_program()) {
        cause = fmt::format(
            "the dslaunch at {} is for another kind of processor than this host has (exit {}: {}); "
            "install a dslaunch for its processor there, and start jobs on this host from a host "
            "with the same kind of processor",
            launcher_path(), event.exit_status, node.diagnostics.back());
    }
    // The bytes may come from another program, or from a login shell that reports why it cannot
    // start the agent.
    const std::string_view said = trim(std::string_view(node.frames.noise()).substr(0, kSaidMax));
    if (!node.greeted && !said.empty()) {
        cause += fmt::format("; it said: {}", printable_lines(said, kCauseIndent));
    }
    lose(event.host, cause);
}

void Fleet::take_signals() {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
        const int number = static_cast<int>(info.ssi_signo);
        if (repeats_.repeats(number, info.ssi_code, steady_clock::now())) continue;
        const bool by_hand = number == SIGINT;
        // If a scheduler's request came through an agent, the scheduler also signals this process a
        // moment later.
        if (!by_hand && interrupts_ == 1 && agent_asked_at_ &&
            steady_clock::now() - *agent_asked_at_ < kSameWishMax) {
            continue;
        }
        wish_end(by_hand ? "Ctrl-C" : "asked to end");
    }
}

void Fleet::wish_end(const std::string& cause) {
    ++interrupts_;
    if (listener_->end_wished(cause)) has_given_up_ = true;
}

void Fleet::keep_in_touch() {
    const auto now = steady_clock::now();
    const auto away = attention_.look(now);
    const bool ping = now >= next_ping_;
    if (ping) next_ping_ = now + kPingInterval;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        Node& node = nodes_[i];
        node.last_byte += away;
        if (node.ended || node.gone || !node.greeted) continue;
        if (ping) send(i, FrameKind::kPing);
        if (now - node.last_byte > kSilenceMax) {
            lose(i, fmt::format("its agent has sent nothing for {} s",
                                to_milliseconds(kSilenceMax) / 1000));
        }
    }
}

void Fleet::stop() {
    stop({.come_again = false, .limit = kUnkillableMax + kFarewellMax});
}

void Fleet::stop(const StopRules& rules) {
    is_stopping_ = true;
    send_all(FrameKind::kStop, encode(StopRequest{rules.come_again}));
    for (size_t i = 0; i < nodes_.size(); ++i) {
        transport_.close_input(i);
        // A host to which the connection is still being made runs no process of this job.
        if (!nodes_[i].greeted && !nodes_[i].ended) lose(i, "the connection was not made yet");
    }
    const auto over = [](const Node& node) { return node.ended || node.gone; };
    // A request to end (Ctrl-C) that comes during this wait ends the wait. Hosts whose agents have
    // not ended are then given up.
    pump([&] { return all(over); }, steady_clock::now() + rules.limit);
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (!over(nodes_[i])) lose(i, "its agent did not end");
    }
}

std::vector<EqualTexts> group_equal(const std::vector<std::string>& texts) {
    std::vector<EqualTexts> groups;
    std::map<std::string, size_t> group_of;
    for (size_t i = 0; i < texts.size(); ++i) {
        const auto [found, is_new] = group_of.emplace(texts[i], groups.size());
        if (is_new) groups.push_back({{}, texts[i]});
        groups[found->second].hosts.push_back(i);
    }
    return groups;
}

}  // namespace dslaunch::launch
