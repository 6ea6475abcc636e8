// The half of the supervisor that reacts: events of the transport, frames of the agents, signals,
// silence.
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/wire.h"
#include "launch/fleet/agent_end.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"
#include "launch/protocol/control.h"
#include "launch/supervise/supervisor.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kKeptDiagnostics = 20;
constexpr size_t kSaidMax = 300;
constexpr milliseconds kTick{500};
constexpr milliseconds kSameWishMax{3'000};
// While terminal or pipe have not taken all that was written.
constexpr milliseconds kCongestedTick{20};
// While they have not taken so much that the ranks must wait: often enough to hear that agents
// live.
constexpr milliseconds kCongestedLook{1'000};

}  // namespace

bool Supervisor::pump(const std::function<bool()>& done, Time deadline) {
    for (;;) {
        const auto now = steady_clock::now();
        const auto left = deadline - now;
        const auto timeout =
            left > kTick ? kTick : std::chrono::ceil<milliseconds>(std::max(left, left.zero()));
        output_.streams().flush();
        if (output_.streams().is_congested() && !stopping_ && now < next_look_) {
            // Nobody reads what the ranks say: they wait in their pipes, yet all stay in touch.
            output_.streams().wait(std::min(timeout, kCongestedTick), signal_fd_);
        } else {
            next_look_ = now + kCongestedLook;
            const auto limit = output_.streams().has_kept() ? kCongestedTick : kTick;
            for (const TransportEvent& event :
                 transport_.wait(done() ? milliseconds(0) : std::min(timeout, limit), signal_fd_)) {
                handle_event(event);
            }
        }
        handle_signals();
        handle_lost_output();
        keep_in_touch();
        if (done()) return true;
        if (steady_clock::now() >= deadline) return false;
    }
}

void Supervisor::handle_event(const TransportEvent& event) {
    Node& node = nodes_[event.host];
    const std::string& name = spec_.nodes[event.host].name;
    switch (event.kind) {
        case TransportEvent::Kind::kEnded:
            return handle_node_end(event);
        case TransportEvent::Kind::kDiagnostic:
            node.diagnostics.push_back(printable(event.text));
            if (node.diagnostics.size() > kKeptDiagnostics) {
                node.diagnostics.erase(node.diagnostics.begin());
            }
            if (node.greeted) output_.note(fmt::format("[{}] {}", name, printable(event.text)));
            return;
        case TransportEvent::Kind::kBytes:
            break;
    }
    if (node.ended) return;
    node.last_byte = steady_clock::now();
    try {
        node.frames.append(event.text);
        while (const auto frame = node.frames.next()) handle_frame(event.host, *frame);
    } catch (const Error& error) {
        lose_node(event.host, fmt::format("its agent speaks nonsense: {}", error.what()));
    }
}

void Supervisor::handle_frame(size_t index, const Frame& frame) {
    Node& node = nodes_[index];
    switch (frame.kind) {
        case FrameKind::kAgentHello:
            node.hello = decode<AgentHello>(frame.payload);
            node.greeted = true;
            return;
        case FrameKind::kChecked:
            node.checked = decode<CheckReply>(frame.payload);
            return;
        case FrameKind::kPrepared:
            node.prepared = decode<PrepareReply>(frame.payload);
            return;
        case FrameKind::kStarted: {
            const auto started = decode<WorkerStarted>(frame.payload);
            record(started.rank).started = true;
            record(started.rank).pid = started.pid;
            if (started.rank == 0 && spec_.binding.mode != BindMode::kAuto) {
                tell_binding(started);
            } else if (started.rank == 0 && spec_.target_kind == TargetKind::kTorchScript) {
                tell_threads(started);
            }
            return output_.add_rank(started);
        }
        case FrameKind::kOutput: {
            const auto text = decode<WorkerOutput>(frame.payload);
            return output_.lines(record(text.rank).rank, text.stream, text.lines);
        }
        case FrameKind::kExited:
            return handle_exit(decode<WorkerExited>(frame.payload));
        case FrameKind::kControl:
            return handle_control(decode<WorkerControl>(frame.payload));
        case FrameKind::kPong:
            return;
        case FrameKind::kGone:
            node.gone = true;
            // It gave up by itself, and its ranks with it.
            if (starting_ && !stopping_ && !node.error.empty()) lose_node(index, node.error);
            return;
        case FrameKind::kProblem: {
            const auto problem = decode<AgentProblem>(frame.payload);
            if (node.error.empty()) node.error = printable_lines(problem.message, 6);
            if (stopping_) {
                leftovers_ += fmt::format("dslaunch: host {}: {}\n", spec_.nodes[index].name,
                                          printable_lines(problem.message, 6));
            }
            if (!node.problem_code) node.problem_code = problem.code;
            // It ends its ranks now: their ends tell nothing of why.
            if (starting_ && !stopping_) name_lost_node(index, node.error);
            return;
        }
        case FrameKind::kAskedToEnd: {
            // A scheduler signals every node and the launcher: it is one wish.
            if (interrupts_ > 0) return;
            const auto request = decode<SignalRequest>(frame.payload);
            agent_asked_at_ = steady_clock::now();
            return ask_to_end(fmt::format("host {} was asked to end by {}", spec_.nodes[index].name,
                                          signal_text(static_cast<int>(request.signal_number))));
        }
        default:
            return handle_network_frame(node, frame);
    }
}

// Said only when it is our choice.
void Supervisor::tell_threads(const WorkerStarted& started) const {
    static const std::string kName = "OMP_NUM_THREADS";
    const std::string* threads = find_variable(started.environment, kName);
    if (threads == nullptr || find_variable(spec_.environment.set, kName) != nullptr) return;
    if (spec_.environment.inherit_all && std::getenv(kName.c_str()) != nullptr) return;
    log_info("launch",
             "OMP_NUM_THREADS={}: the {} processors of {} shared by its {} rank(s); set "
             "OMP_NUM_THREADS for another number",
             *threads, nodes_.front().hello.cores, spec_.nodes.front().name,
             spec_.nodes.front().workers.size());
}

void Supervisor::handle_control(const WorkerControl& control) {
    RankRecord& rank = record(control.rank);
    switch (static_cast<ControlKind>(control.kind)) {
        case ControlKind::kMetrics:
            return output_.metrics(control.payload);
        case ControlKind::kRunInfo:
            if (rank.rank == 0) output_.run_info(control.payload);
            return;
        case ControlKind::kProgress:
            if (rank.rank == 0) output_.progress(control.payload);
            return;
        case ControlKind::kHealth:
            return output_.health(rank.rank, control.payload);
        case ControlKind::kFailure: {
            WireReader reader(control.payload, "a failure");
            const uint32_t code = reader.u32();
            rank.failure = AgentProblem{code, control.payload.substr(sizeof code)};
            output_.expect_failure_text(rank.rank, rank.failure->message);
            return;
        }
        case ControlKind::kHeartbeat:
            // What a rank says while it is being ended tells nothing of why.
            if (stop_at_ || stopping_) return;
            rank.heartbeat = decode_heartbeat(control.payload);
            rank.heard_at = steady_clock::now();
            if (const auto line = stragglers_.look(ranks_)) output_.note(*line);
            return;
        default:
            return;
    }
}

void Supervisor::handle_exit(const WorkerExited& exited) {
    RankRecord& rank = record(exited.rank);
    if (rank.ended) return;
    rank.ended = true;
    rank.exited = exited;
    rank.order = ++ends_;
    rank.told_to_end = stopping_ || !lost_node_.empty();
    if (!rank.failed()) return;
    if (exited.pid != 0) rank.pid = exited.pid;
    const bool peer =
        exited.signal_number == 0 && exited.exit_status == static_cast<int>(ExitCode::kPeerLost);
    // Who lost a peer is not to blame: the one who is has a moment to be heard.
    const auto at = steady_clock::now() + (peer ? kCulpritWait : milliseconds(0));
    if (!stop_at_ || at < *stop_at_) stop_at_ = at;
    if (exited.signal_number == SIGKILL && spec_.transport == TransportKind::kSlurm && !stopping_) {
        agents_end_by_ = steady_clock::now() + kStepEndMax;
    }
}

void Supervisor::handle_node_end(const TransportEvent& event) {
    Node& node = nodes_[event.host];
    if (node.ended) return;
    if (node.gone && !stopping_ && !starting_) {
        if (node.error.empty()) node.error = "its agent was told to end, before the start";
        return lose_node(event.host, std::string(node.error));
    }
    if (node.gone || stopping_) {
        node.ended = true;
        if (starting_) end_ranks_of(event.host, "unknown, its agent ended first");
        return;
    }
    std::string cause =
        node.error.empty() ? describe_agent_end(event, node.greeted, node.diagnostics) : node.error;
    // Another program may have answered, or a login shell that says why it does not run ours.
    const std::string_view said = trim(std::string_view(node.frames.noise()).substr(0, kSaidMax));
    if (!node.greeted && !said.empty()) {
        cause += fmt::format("; it said: {}", printable_lines(said, 6));
    }
    lose_node(event.host, cause);
}

void Supervisor::lose_node(size_t index, const std::string& cause) {
    Node& node = nodes_[index];
    node.ended = true;
    node.error = cause;
    transport_.abandon(index);
    if (!starting_) return;
    name_lost_node(index, cause);
    end_ranks_of(index, "unknown, its host is lost");
}

void Supervisor::name_lost_node(size_t index, const std::string& cause) {
    if (lost_node_.empty() && !stopping_) {
        lost_node_ = fmt::format("host {} is lost: {}", spec_.nodes[index].name, cause);
    }
    stop_at_ = steady_clock::now();
}

void Supervisor::end_ranks_of(size_t index, const std::string& cause) {
    for (RankRecord& rank : ranks_) {
        if (rank.ended || rank.host != spec_.nodes[index].name) continue;
        rank.ended = true;
        rank.told_to_end = true;
        rank.order = ++ends_;
        rank.unknown_end = cause;
        rank.exited.exit_status = static_cast<int>(ExitCode::kHosts);
    }
}

void Supervisor::fail_if_bad_nodes(const std::string& what, ExitCode code) {
    if (end_now_) return;
    std::string message;
    int count = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].error.empty()) continue;
        ++count;
        bad_hosts_.push_back(spec_.nodes[i].name);
        message += fmt::format("\n  {}: {}", spec_.nodes[i].name, nodes_[i].error);
    }
    if (count > 0) {
        fail(code, "{} {} of {} host(s):{}", what, count, nodes_.size(), message);
    }
}

void Supervisor::handle_signals() {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
        const bool by_hand = info.ssi_signo == SIGINT;
        // The scheduler that asked through an agent signals this process a moment later.
        if (!by_hand && interrupts_ == 1 && agent_asked_at_ &&
            steady_clock::now() - *agent_asked_at_ < kSameWishMax) {
            continue;
        }
        ask_to_end(by_hand ? "Ctrl-C" : "asked to end");
    }
}

// A program whose reader is gone ends by SIGPIPE; here it is the launcher that learns of it.
void Supervisor::handle_lost_output() {
    if (!output_.is_lost() || output_lost_ || !starting_ || stopping_) return;
    output_lost_ = true;
    stop_at_ = steady_clock::now();
}

void Supervisor::ask_to_end(const std::string& cause) {
    ++interrupts_;
    if (!starting_ || interrupts_ > 1 || stopping_ || spec_.grace.count() == 0) {
        end_now_ = true;
        output_.streams().hurry();
        return;
    }
    save_asked_ = true;
    save_deadline_ = steady_clock::now() + spec_.grace;
    const bool trains = spec_.target_kind == TargetKind::kTorchScript;
    output_.note(
        fmt::format("dslaunch: {}; the ranks have {} s to {}, a second Ctrl-C ends them at once",
                    cause, std::chrono::duration_cast<std::chrono::seconds>(spec_.grace).count(),
                    trains ? "save" : "end"));
    if (trains) {
        send_all(FrameKind::kSave);
    } else {
        send_all(FrameKind::kSignal, encode(SignalRequest{SIGTERM}));
    }
}

void Supervisor::keep_in_touch() {
    const auto now = steady_clock::now();
    if (now >= next_ping_) {
        next_ping_ = now + kPingInterval;
        for (size_t i = 0; i < nodes_.size(); ++i) {
            if (nodes_[i].greeted) send(i, FrameKind::kPing);
        }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].ended || nodes_[i].gone || !nodes_[i].greeted) continue;
        if (now - nodes_[i].last_byte > kSilenceMax) {
            lose_node(
                i,
                fmt::format("nothing heard from its agent for {} s",
                            std::chrono::duration_cast<std::chrono::seconds>(kSilenceMax).count()));
        }
    }
}

}  // namespace dslaunch::launch
