#include "launch/agent/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <iterator>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/machine/signal_repeats.h"
#include "base/text.h"
#include "launch/agent/agent_workers.h"
#include "launch/agent/command_answers.h"
#include "launch/agent/launcher_connection.h"
#include "launch/agent/machine_facts.h"
#include "launch/agent/push_receiver.h"
#include "launch/files/file_facts.h"
#include "launch/machine/machine_topology.h"
#include "launch/machine/port_watch.h"
#include "launch/network/network_probe.h"
#include "launch/plan/launch_plan.h"
#include "launch/process/kill_group.h"
#include "launch/process/process_tree.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// While more than this many bytes wait to be sent to the launcher, the agent does not read the
// workers' pipes.
constexpr size_t kOutboxBytesMax = 1U << 20;

class Agent {
  public:
    Agent(int in_fd, int out_fd, int signal_fd, JoinChannel channel, AgentSettings settings)
        : launcher_(in_fd, out_fd, std::move(channel)),
          settings_(std::move(settings)),
          silence_(settings_.lease),
          guardian_(::getppid()),
          signal_fd_(signal_fd) {}

    int run();

  private:
    enum class State { kServing, kTerm, kKill, kDone };
    struct Watched {
        int fd;
        short events;
        std::function<void()> ready;
    };

    [[nodiscard]] std::vector<Watched> watch();
    [[nodiscard]] int poll_timeout() const;
    void check_time();
    void check_lease(steady_clock::time_point now);
    void read_input();
    void take_frames();
    void handle(const Frame& frame);
    void say_alive();
    void check_files(const CheckRequest& request);
    void start_workers(const StartRequest& request);
    void take_signals();
    [[nodiscard]] bool asks_first(int signal_number);
    void reap();
    [[nodiscard]] bool has_ended_it(int signal_number) const;
    void greet(const Hello& hello);
    void begin_end();
    void kill_the_rest();
    void send(FrameKind kind, std::string payload = {});
    void send_problem(ExitCode code, const std::string& message);
    void flush();
    void flush_before_leaving();

    LauncherConnection launcher_;
    AgentSettings settings_;
    LauncherSilence silence_;
    pid_t guardian_;
    std::optional<steady_clock::time_point> asked_at_;  // when this agent asked the launcher to end
                                                        // the job
    int signal_fd_;
    AgentWorkers workers_{
        [this](FrameKind kind, std::string payload) { send(kind, std::move(payload)); }};
    MeetingSocket rendezvous_;
    NetworkProbe network_;
    PortWatch port_watch_;
    AgentHello node_;
    PushReceiver push_{
        [this](const PushAnswer& answer) { send(FrameKind::kPushAnswer, encode(answer)); },
        [this] { say_alive(); }};
    State state_ = State::kServing;
    int exit_code_ = 0;
    steady_clock::time_point end_began_;
};

void Agent::send(FrameKind kind, std::string payload) {
    if (launcher_.out_fd() < 0) return;
    launcher_.say(encode(Frame{kind, std::move(payload)}));
    flush();
}

void Agent::send_problem(ExitCode code, const std::string& message) {
    send(FrameKind::kProblem, encode(AgentProblem{static_cast<uint32_t>(code), message}));
}

void Agent::flush() {
    if (!launcher_.flush()) begin_end();
}

void Agent::read_input() {
    LauncherConnection::Input input{};
    try {
        input = launcher_.read();
    } catch (const Error& error) {
        log_error("agent", "the connection to the launcher cannot be trusted: {}; the agent ends",
                  error.what());
        exit_code_ = static_cast<int>(error.code());
        flush();
        launcher_.close_input();
        launcher_.close_output();
        begin_end();
        return;
    }
    if (input == LauncherConnection::Input::kEnd) return begin_end();
    if (input == LauncherConnection::Input::kNothing) return;
    silence_.end(steady_clock::now());
    take_frames();
    silence_.end(steady_clock::now());  // the launcher was not silent while this agent hashed
}

void Agent::take_frames() {
    while (const auto frame = launcher_.next()) handle(*frame);
}

void Agent::greet(const Hello& hello) {
    node_ = look_at_node();
    if (!settings_.arrival_address.empty()) node_.arrival_address = settings_.arrival_address;
    if (settings_.visible_devices && node_.gpus > 0)
        node_.gpus = std::ssize(visible_device_list(settings_.visible_devices, 0));
    if (hello.want_binary_hash) node_.binary_hash = own_binary_hash();
    // A launcher with a different protocol version finds the mismatch in the hello and stops
    // reading.
    if (hello.protocol_version == kAgentProtocolVersion && hello.want_binary_hash)
        send(FrameKind::kMachineFacts, encode(look_at_machine("")));
    send(FrameKind::kAgentHello, encode(node_));
}

void Agent::handle(const Frame& frame) {
    switch (frame.kind) {
        case FrameKind::kHello:
            return greet(decode<Hello>(frame.payload));
        case FrameKind::kCheck:
            return check_files(decode<CheckRequest>(frame.payload));
        case FrameKind::kPrepare:
            rendezvous_ =
                open_rendezvous(decode<PrepareRequest>(frame.payload), node_.arrival_address);
            return send(FrameKind::kPrepared, encode(rendezvous_.where));
        case FrameKind::kListen:
            return send(FrameKind::kListening,
                        encode(network_.listen(decode<ListenRequest>(frame.payload))));
        case FrameKind::kProbe:
            return network_.begin(decode<ProbeRequest>(frame.payload), steady_clock::now());
        case FrameKind::kChooseNetwork:
            rendezvous_ = network_.keep(decode<ChooseRequest>(frame.payload).address);
            return;
        case FrameKind::kStart:
            return start_workers(decode<StartRequest>(frame.payload));
        case FrameKind::kSignal:
            return workers_.signal(
                static_cast<int>(decode<SignalRequest>(frame.payload).signal_number));
        case FrameKind::kSave:
            return workers_.save();
        case FrameKind::kStop:
            if (settings_.come_again_fd >= 0 && !frame.payload.empty() &&
                decode<StopRequest>(frame.payload).come_again) {
                ::eventfd_write(settings_.come_again_fd, 1);
            }
            return begin_end();
        case FrameKind::kPing:
            return send(FrameKind::kPong);
        case FrameKind::kPushOffer:
            return push_.offer(decode<PushOffer>(frame.payload));
        case FrameKind::kPushChunks:
            return push_.take_chunks(decode<PushChunks>(frame.payload));
        case FrameKind::kPushPiece:
            return push_.take_piece(decode<PushPiece>(frame.payload));
        default:
            if (const auto answer = answer_command(frame, [this] { say_alive(); }))
                return send(answer->kind, answer->payload);
            fail(ExitCode::kInternal, "an agent received a frame meant for the launcher");
    }
}

// Tells the launcher that this agent is alive. Used while a large file is read.
void Agent::say_alive() {
    if (silence_.sends_sign(steady_clock::now())) send(FrameKind::kPong);
}

void Agent::check_files(const CheckRequest& request) {
    CheckReply reply;
    HashCache cache(HashCache::default_path());
    for (const std::string& path : request.paths) {
        reply.files.push_back(look_at_file(
            path, request.all_bytes, [this] { say_alive(); }, &cache));
    }
    cache.save();
    send(FrameKind::kChecked, encode(reply));
}

void Agent::start_workers(const StartRequest& request) {
    if (!workers_.all().empty())
        fail(ExitCode::kInternal, "received a second request to start workers");
    if (state_ != State::kServing || request.workers.empty()) return;
    const WorkerEnvironment& first = request.workers.front().place;
    const bool are_ranks = request.workers.front().is_rank;
    if (are_ranks) {
        const bool has_group = enter_kill_group(first.launch_id, first.attempt);
        log_debug("agent", "own control group: {}",
                  has_group ? "yes" : "no, because the agent cannot create a control group");
    }
    // Rank 0 of a script binds the port that all ranks have been given. Watch that no other user
    // takes this port first.
    if (request.target_kind != TargetKind::kModel && are_ranks && first.rank == 0)
        port_watch_.begin(first.master_port, steady_clock::now());
    workers_.start(request,
                   {rendezvous_, node_.cores, settings_.worker_stdin, settings_.visible_devices});
}

void Agent::take_signals() {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
        if (info.ssi_signo == SIGCHLD || asks_first(static_cast<int>(info.ssi_signo))) continue;
        if (state_ == State::kServing && ::getppid() != guardian_) {
            send_problem(ExitCode::kHosts,
                         "the process that guards its agent was killed, probably by a scheduler "
                         "that ended the job step");
        }
        begin_end();
    }
    reap();
}

// Returns true if the launcher decides how to act on a signal. Returns false if the guardian is
// gone: then nobody would clean up after this process.
bool Agent::asks_first(int signal_number) {
    if (!settings_.asks_before_ending || !launcher_.is_greeted() || state_ != State::kServing ||
        ::getppid() != guardian_) {
        return false;
    }
    const auto now = steady_clock::now();
    // A signal to the whole process group arrives twice: directly and through the guardian.
    if (asked_at_) return now - *asked_at_ < kSameSignalMax;
    asked_at_ = now;
    send(FrameKind::kAskedToEnd, encode(SignalRequest{signal_number}));
    return true;
}

void Agent::reap() {
    int status = 0;
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
        workers_.report_end(pid, status,
                            [this](int signal_number) { return has_ended_it(signal_number); });
    }
    if (pid < 0 && errno == ECHILD && state_ != State::kServing) state_ = State::kDone;
}

// Returns true if this agent caused the end of a worker. SIGNAL_NUMBER is the signal that ended the
// worker, or 0.
bool Agent::has_ended_it(int signal_number) const {
    // The agent sends SIGKILL only in state kKill. If SIGKILL ended a worker in state kTerm, a
    // different process sent it.
    return state_ == State::kTerm ? signal_number != SIGKILL : state_ != State::kServing;
}

void Agent::begin_end() {
    if (state_ != State::kServing) return;
    reap();  // workers that have already ended did so by themselves
    state_ = State::kTerm;
    end_began_ = steady_clock::now();
    workers_.signal(SIGTERM);
    for (const ProcessName& process : descendants(::getpid())) {
        signal_process(process, SIGTERM);
        signal_process(process, SIGCONT);  // a stopped process must run again before it can end
    }
    reap();
}

void Agent::kill_the_rest() {
    for (const ProcessName& process : descendants(::getpid())) signal_process(process, SIGKILL);
}

void Agent::check_lease(steady_clock::time_point now) {
    const auto silence = silence_.look(now);
    if (state_ != State::kServing) return;
    std::string over;
    if (launcher_.is_greeted()) {
        // If the launcher's machine still runs, it acknowledges the bytes of this message. over()
        // checks the acknowledgement.
        if (silence > kPingInterval) say_alive();
        over = silence_.over(silence);
    } else if (silence > kFirstByteMax) {
        over = fmt::format("the launcher has sent nothing for {} s",
                           std::chrono::floor<std::chrono::seconds>(kFirstByteMax).count());
    }
    if (over.empty()) return;
    log_error("agent", "{}; ending the workers", over);
    begin_end();
}

void Agent::check_time() {
    const auto now = steady_clock::now();
    if (const auto reply = network_.take_reply(now)) send(FrameKind::kProbed, encode(*reply));
    check_lease(now);
    if (state_ == State::kServing) {
        if (const std::string cause = port_watch_.look(now); !cause.empty()) {
            send_problem(ExitCode::kSetup, cause);
            begin_end();
        }
    }
    if (state_ == State::kTerm && now - end_began_ >= kTermToKill) state_ = State::kKill;
    if (state_ == State::kKill) {
        kill_the_rest();
        reap();
    }
    if (state_ == State::kKill && now - end_began_ > kUnkillableMax) {
        // A process in uninterruptible sleep dies when its I/O returns; there is no use in waiting
        // for it.
        std::string left;
        for (const ProcessName& process : descendants(::getpid()))
            left += (left.empty() ? " " : ", ") + describe_process(process.pid);
        const bool waits = left.find(", state D") != std::string::npos;
        send_problem(ExitCode::kSetup,
                     "these processes were killed, but have not ended yet:" + left +
                         (waits ? " (state D: waiting for a disk or a driver)" : ""));
        state_ = State::kDone;
    }
}

int Agent::poll_timeout() const {
    if (state_ == State::kServing) {
        const auto deadline = network_.deadline().value_or(steady_clock::time_point::max());
        const auto limit =
            std::min({deadline, port_watch_.next_look(), steady_clock::now() + milliseconds(1000)});
        const auto left = std::chrono::ceil<milliseconds>(limit - steady_clock::now());
        return static_cast<int>(std::max<int64_t>(0, left.count()));
    }
    if (state_ == State::kKill) return 5;
    const auto left = end_began_ + kTermToKill - steady_clock::now();
    return static_cast<int>(
               std::max<int64_t>(0, std::chrono::duration_cast<milliseconds>(left).count())) +
           1;
}

std::vector<Agent::Watched> Agent::watch() {
    std::vector<Watched> watched;
    watched.push_back({signal_fd_, POLLIN, [this] { take_signals(); }});
    if (launcher_.in_fd() >= 0)
        watched.push_back({launcher_.in_fd(), POLLIN, [this] { read_input(); }});
    if (launcher_.out_fd() >= 0) {
        // The descriptor is polled even when there is nothing to write: POLLERR reports that the
        // reader is gone.
        const bool writes = launcher_.unsent_bytes() > 0;
        watched.push_back(
            {launcher_.out_fd(), static_cast<short>(writes ? POLLOUT : 0), [this, writes] {
                 // WRITES records whether poll() waited for POLLOUT. The length of the queue may
                 // have changed since poll() was called.
                 if (writes) return flush();
                 launcher_.close_output();
                 begin_end();
             }});
    }
    for (const NetworkProbe::Watch& entry : network_.watch()) {
        watched.push_back({entry.fd, entry.events, [=, this] { network_.ready(entry.fd); }});
    }
    if (launcher_.unsent_bytes() > kOutboxBytesMax) return watched;
    for (AgentWorker& worker : workers_.all()) {
        const auto add = [&](int fd, std::function<void()> ready) {
            if (fd >= 0) watched.push_back({fd, POLLIN, std::move(ready)});
        };
        AgentWorker* w = &worker;  // the pointer stays valid: see AgentWorkers::all()
        add(worker.stdout_pipe.get(),
            [=, this] { workers_.read_output(*w, OutputStream::kStdout, false); });
        add(worker.stderr_pipe.get(),
            [=, this] { workers_.read_output(*w, OutputStream::kStderr, false); });
        add(worker.control.get(), [=, this] { static_cast<void>(workers_.read_control(*w)); });
    }
    return watched;
}

void Agent::flush_before_leaving() {
    // The outbox contains the last lines of killed ranks. They are sent for as long as the launcher
    // keeps reading, but at most for kUnkillableMax.
    const auto last = steady_clock::now() + kUnkillableMax;
    auto limit = steady_clock::now() + kFarewellMax;
    while (launcher_.out_fd() >= 0 && launcher_.unsent_bytes() > 0 &&
           steady_clock::now() < std::min(limit, last)) {
        pollfd entry{launcher_.out_fd(), POLLOUT, 0};
        const size_t before = launcher_.unsent_bytes();
        if (::poll(&entry, 1, 100) > 0) flush();
        if (launcher_.unsent_bytes() < before) limit = steady_clock::now() + kFarewellMax;
    }
}

int Agent::run() {
    launcher_.say(kAgentGreeting);
    flush();
    while (state_ != State::kDone) {
        try {
            take_frames();  // frames may have arrived with the handshake
            const std::vector<Watched> watched = watch();
            std::vector<pollfd> entries;
            for (const Watched& item : watched) entries.push_back({item.fd, item.events, 0});
            if (::poll(entries.data(), entries.size(), poll_timeout()) < 0 && errno != EINTR) {
                fail(ExitCode::kInternal, "poll failed: {}", errno_text(errno));
            }
            // Handles ended processes first, then the launcher's frames, then the workers' output.
            // A frame that starts workers adds descriptors, so the list of watched descriptors is
            // built again.
            const size_t workers_before = workers_.all().size();
            for (size_t i = 0; i < entries.size(); ++i) {
                if (entries[i].revents != 0) watched[i].ready();
                if (workers_.all().size() != workers_before || state_ == State::kDone) break;
            }
            check_time();
        } catch (const Error& error) {
            exit_code_ = static_cast<int>(error.code());
            send_problem(error.code(), error.what());
            begin_end();
            launcher_.close_input();
        }
    }
    send(FrameKind::kGone);
    flush_before_leaving();
    return exit_code_;
}

}  // namespace

int run_agent(int in_fd, int out_fd, JoinChannel channel, const AgentSettings& settings) {
    return run_guarded([&](int signal_fd) {
        ::fcntl(in_fd, F_SETFD, FD_CLOEXEC);
        ::fcntl(out_fd, F_SETFD, FD_CLOEXEC);
        set_blocking(out_fd, false);
        return Agent(in_fd, out_fd, signal_fd, std::move(channel), settings).run();
    });
}

}  // namespace dslaunch::launch
