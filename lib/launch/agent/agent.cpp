#include "launch/agent/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
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
#include "base/text.h"
#include "launch/agent/agent_worker.h"
#include "launch/agent/device_report.h"
#include "launch/agent/machine_facts.h"
#include "launch/agent/push_receiver.h"
#include "launch/files/file_facts.h"
#include "launch/machine/machine_topology.h"
#include "launch/machine/port_owner.h"
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

// Above this many bytes for the launcher the workers' output waits in its pipes.
constexpr size_t kOutboxBytesMax = 1U << 20;
// Signals nearer to each other than this are one wish to end.
constexpr milliseconds kSameSignalMax{1'000};

class Agent {
  public:
    Agent(int in_fd, int out_fd, int signal_fd, JoinChannel channel, AgentSettings settings)
        : channel_(std::move(channel)),
          settings_(std::move(settings)),
          guardian_(::getppid()),
          in_fd_(in_fd),
          out_fd_(out_fd),
          signal_fd_(signal_fd),
          frames_(false) {}

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
    void report_not_started(int64_t rank, const std::string& cause, int exit_code = 127);
    void read_output(AgentWorker& worker, OutputStream stream, bool to_the_end);
    bool read_control(AgentWorker& worker);
    void take_signals();
    [[nodiscard]] bool asks_first(int signal_number);
    void reap();
    void report_exit(AgentWorker& worker, int status);
    void signal_workers(int signal_number);
    void save_workers();
    void begin_end();
    void kill_the_rest();
    void send(FrameKind kind, std::string payload = {});
    void send_problem(ExitCode code, const std::string& message);
    void flush();
    void flush_before_leaving();

    JoinChannel channel_;
    std::string& outbox_ = channel_.to_connection();
    AgentSettings settings_;
    pid_t guardian_;
    std::optional<steady_clock::time_point> asked_at_;  // the launcher was asked to end the job
    int in_fd_;                                         // -1: closed
    int out_fd_;
    int signal_fd_;
    FrameDecoder frames_;
    std::vector<AgentWorker> workers_;
    Rendezvous rendezvous_;
    NetworkProbe network_;
    PortWatch port_watch_;
    UniqueFd arena_;
    AgentHello node_;
    OomCount oom_before_;
    PushReceiver push_{
        [this](const PushAnswer& answer) { send(FrameKind::kPushAnswer, encode(answer)); },
        [this] { say_alive(); }};
    steady_clock::time_point last_sign_ = steady_clock::now();
    State state_ = State::kServing;
    bool greeted_ = false;
    int exit_code_ = 0;
    steady_clock::time_point end_began_;
    Attention attention_;
    steady_clock::time_point last_input_ = steady_clock::now();
};

void Agent::send(FrameKind kind, std::string payload) {
    if (out_fd_ < 0) return;
    channel_.say(encode(Frame{kind, std::move(payload)}));
    flush();
}

void Agent::send_problem(ExitCode code, const std::string& message) {
    send(FrameKind::kProblem, encode(AgentProblem{static_cast<uint32_t>(code), message}));
}

void Agent::flush() {
    if (out_fd_ < 0 || send_now(out_fd_, outbox_) != Sending::kGone) return;
    out_fd_ = -1;  // nobody listens any more
    outbox_.clear();
    begin_end();
}

void Agent::read_input() {
    char block[kReadBytes];
    const ssize_t n = ::read(in_fd_, block, sizeof block);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        in_fd_ = -1;
        begin_end();
        return;
    }
    try {
        channel_.receive(std::string_view(block, static_cast<size_t>(n)));
    } catch (const Error& error) {
        log_error("agent", "the connection to the launcher is not to be trusted: {}; ending",
                  error.what());
        exit_code_ = static_cast<int>(error.code());
        flush();
        in_fd_ = out_fd_ = -1;
        begin_end();
        return;
    }
    last_input_ = steady_clock::now();
    take_frames();
    last_input_ = steady_clock::now();  // hashing a large file is not the launcher's silence
}

void Agent::take_frames() {
    frames_.append(channel_.take_received());
    while (const auto frame = frames_.next()) handle(*frame);
}

void Agent::handle(const Frame& frame) {
    if (!greeted_ && frame.kind != FrameKind::kHello) {
        fail(ExitCode::kInternal, "the first frame is no hello");
    }
    switch (frame.kind) {
        case FrameKind::kHello: {
            const auto hello = decode<Hello>(frame.payload);
            greeted_ = true;
            node_ = look_at_node();
            if (!settings_.arrival_address.empty()) {
                node_.arrival_address = settings_.arrival_address;
            }
            if (settings_.visible_devices && node_.gpus > 0) {
                node_.gpus = std::ssize(visible_device_list(settings_.visible_devices, 0));
            }
            if (hello.want_binary_hash) node_.binary_hash = own_binary_hash();
            // A launcher of another version learns that from the hello and reads no further.
            if (hello.protocol_version == kAgentProtocolVersion && hello.want_binary_hash) {
                send(FrameKind::kMachineFacts, encode(look_at_machine("")));
            }
            return send(FrameKind::kAgentHello, encode(node_));
        }
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
            return signal_workers(
                static_cast<int>(decode<SignalRequest>(frame.payload).signal_number));
        case FrameKind::kSave:
            return save_workers();
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
            fail(ExitCode::kInternal, "a frame meant for the launcher arrived at an agent");
    }
}

// Tells the launcher that we live, while a large file is read.
void Agent::say_alive() {
    if (steady_clock::now() - last_sign_ < kPingInterval) return;
    last_sign_ = steady_clock::now();
    send(FrameKind::kPong);
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
    if (!workers_.empty()) fail(ExitCode::kInternal, "a second request to start workers");
    if (state_ != State::kServing || request.workers.empty()) return;
    const WorkerEnvironment& first = request.workers.front().place;
    if (request.workers.front().is_rank)
        log_debug(
            "agent", "a control group of its own: {}",
            enter_kill_group(first.launch_id, first.attempt) ? "yes" : "no, it may not make one");
    if (request.target_kind == TargetKind::kModel) {
        arena_ = UniqueFd(::memfd_create("dslaunch-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!arena_.valid()) {
            fail(ExitCode::kSetup, "cannot make the shared arena: {}", errno_text(errno));
        }
    } else {
        rendezvous_.socket.reset();  // these programs bind the port themselves
        // Rank 0 must have the port that all ranks know.
        if (request.workers.front().is_rank && first.rank == 0)
            port_watch_.begin(first.master_port, steady_clock::now());
    }
    oom_before_ = count_oom_kills();
    std::vector<RankPlace> places;
    try {
        places = place_workers(request);
    } catch (const Error& error) {
        for (const StartRequest::Worker& wanted : request.workers) {
            report_not_started(wanted.place.rank, error.what());
        }
        return;
    }
    SharedDescriptors shared{arena_.get(), rendezvous_.socket.get(), settings_.worker_stdin,
                             node_.cores, nullptr};
    for (const StartRequest::Worker& wanted : request.workers) {
        const auto local_rank = static_cast<size_t>(&wanted - request.workers.data());
        if (!places.empty()) shared.place = &places[local_rank];
        if (wanted.command.empty()) fail(ExitCode::kInternal, "a worker without a command");
        StartRequest::Worker worker = wanted;
        if (settings_.visible_devices) {
            worker.place.devices = devices_seen_through(
                worker.place.devices, visible_device_list(settings_.visible_devices, 0));
        }
        WorkerLaunch launch = launch_worker(request, worker, shared);
        if (!launch.error.empty()) {
            report_not_started(worker.place.rank, launch.error, launch.exit_code);
            continue;
        }
        workers_.push_back(std::move(launch.worker));
        send(FrameKind::kStarted, encode(launch.started));
    }
    // From here on only the workers hold them.
    rendezvous_.socket.reset();
    arena_.reset();
}

void Agent::report_not_started(int64_t rank, const std::string& cause, int exit_code) {
    WorkerExited exited;
    exited.rank = rank;
    exited.exit_status = exit_code;
    exited.start_error = cause;
    send(FrameKind::kExited, encode(exited));
}

void Agent::read_output(AgentWorker& worker, OutputStream stream, bool to_the_end) {
    // Control frames that were written before the output must arrive before it.
    if (!read_control(worker) && !to_the_end) return;
    const std::string lines = read_lines(worker, stream, to_the_end);
    if (!lines.empty()) send(FrameKind::kOutput, encode(WorkerOutput{worker.rank, stream, lines}));
}

bool Agent::read_control(AgentWorker& worker) {
    return read_control_frames(
        worker, [this](const WorkerControl& said) { send(FrameKind::kControl, encode(said)); });
}

void Agent::take_signals() {
    signalfd_siginfo info{};
    while (::read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
        if (info.ssi_signo == SIGCHLD || asks_first(static_cast<int>(info.ssi_signo))) continue;
        if (state_ == State::kServing && ::getppid() != guardian_) {
            send_problem(ExitCode::kHosts,
                         "the process that guards its agent was killed, as a scheduler does that "
                         "ends a step");
        }
        begin_end();
    }
    reap();
}

// Returns true if the launcher decides what a signal means: unless the guardian is gone, since
// nobody would clean up after this process then.
bool Agent::asks_first(int signal_number) {
    if (!settings_.asks_before_ending || !greeted_ || state_ != State::kServing ||
        ::getppid() != guardian_) {
        return false;
    }
    const auto now = steady_clock::now();
    // A signal to the whole group comes twice: directly and through the guardian.
    if (asked_at_) return now - *asked_at_ < kSameSignalMax;
    asked_at_ = now;
    send(FrameKind::kAskedToEnd, encode(SignalRequest{signal_number}));
    return true;
}

void Agent::reap() {
    int status = 0;
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
        for (AgentWorker& worker : workers_) {
            if (worker.pid == pid && !worker.ended) report_exit(worker, status);
        }
    }
    if (pid < 0 && errno == ECHILD && state_ != State::kServing) state_ = State::kDone;
}

void Agent::report_exit(AgentWorker& worker, int status) {
    worker.ended = true;
    read_output(worker, OutputStream::kStdout, true);
    read_output(worker, OutputStream::kStderr, true);
    static_cast<void>(read_control(worker));
    worker.control.reset();
    WorkerExited exited;
    exited.rank = worker.rank;
    exited.pid = worker.pid;
    if (WIFSIGNALED(status)) {
        exited.signal_number = WTERMSIG(status);
        exited.dumped_core = WCOREDUMP(status);
        if (exited.signal_number == SIGKILL) {
            exited.oom_evidence = describe_oom(oom_before_, count_oom_kills());
        }
    } else {
        exited.exit_status = WEXITSTATUS(status);
    }
    // Until kKill nothing of ours kills: somebody else did, however late it is seen.
    exited.told_to_end =
        state_ == State::kTerm ? exited.signal_number != SIGKILL : state_ != State::kServing;
    send(FrameKind::kExited, encode(exited));
}

void Agent::signal_workers(int signal_number) {
    if (signal_number <= 0 || signal_number >= NSIG) return;
    for (const AgentWorker& worker : workers_) {
        if (!worker.ended) ::kill(-worker.pid, signal_number);
    }
}

void Agent::save_workers() {
    const std::string bytes = encode(ControlFrame{ControlKind::kSaveAndEnd, {}});
    for (AgentWorker& worker : workers_) {
        // Six bytes fit into a socket buffer that nothing else of ours fills.
        if (worker.control.valid() && write_full(worker.control.get(), bytes) != 0) {
            log_warn("agent", "rank {} does not take the request to save", worker.rank);
        }
    }
}

void Agent::begin_end() {
    if (state_ != State::kServing) return;
    reap();  // these ended by themselves
    state_ = State::kTerm;
    end_began_ = steady_clock::now();
    signal_workers(SIGTERM);
    for (const ProcessName& process : descendants(::getpid())) {
        signal_process(process, SIGTERM);
        signal_process(process, SIGCONT);  // a stopped one must be able to end
    }
    reap();
}

void Agent::kill_the_rest() {
    for (const ProcessName& process : descendants(::getpid())) signal_process(process, SIGKILL);
}

void Agent::check_lease(steady_clock::time_point now) {
    last_input_ += attention_.look(now);
    if (state_ != State::kServing) return;
    const auto silence = std::chrono::floor<milliseconds>(now - last_input_);
    std::string over;
    if (greeted_) {
        if (silence > kPingInterval) say_alive();  // something for its machine to acknowledge
        over = settings_.lease.over(silence);
    } else if (silence > kFirstByteMax) {
        over = fmt::format("nothing from the launcher for {} s",
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
        // A process in uninterruptible sleep dies when its I/O returns; waiting for it helps
        // nobody.
        std::string left;
        for (const ProcessName& process : descendants(::getpid()))
            left += (left.empty() ? " " : ", ") + describe_process(process.pid);
        const bool waits = left.find(", state D") != std::string::npos;
        send_problem(ExitCode::kSetup,
                     "these processes were killed and have not ended yet:" + left +
                         (waits ? " (D: they wait for a disk or a driver)" : ""));
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
    if (in_fd_ >= 0) watched.push_back({in_fd_, POLLIN, [this] { read_input(); }});
    if (out_fd_ >= 0) {
        // The descriptor is watched even with nothing to write: POLLERR tells that the reader is
        // gone.
        const bool writes = !outbox_.empty();
        watched.push_back({out_fd_, static_cast<short>(writes ? POLLOUT : 0), [this, writes] {
                               // The bytes may have been written since the poll.
                               if (writes) return flush();
                               out_fd_ = -1;
                               begin_end();
                           }});
    }
    for (const NetworkProbe::Watch& entry : network_.watch()) {
        watched.push_back({entry.fd, entry.events, [=, this] { network_.ready(entry.fd); }});
    }
    if (outbox_.size() > kOutboxBytesMax) return watched;
    for (AgentWorker& worker : workers_) {
        const auto add = [&](int fd, std::function<void()> ready) {
            if (fd >= 0) watched.push_back({fd, POLLIN, std::move(ready)});
        };
        AgentWorker* w = &worker;  // workers_ grows only in start_workers()
        add(worker.stdout_pipe.get(), [=, this] { read_output(*w, OutputStream::kStdout, false); });
        add(worker.stderr_pipe.get(), [=, this] { read_output(*w, OutputStream::kStderr, false); });
        add(worker.control.get(), [=, this] { static_cast<void>(read_control(*w)); });
    }
    return watched;
}

void Agent::flush_before_leaving() {
    // The last lines of killed ranks are in it: as long as the launcher reads, it gets them.
    const auto last = steady_clock::now() + kUnkillableMax;
    auto limit = steady_clock::now() + kFarewellMax;
    while (out_fd_ >= 0 && !outbox_.empty() && steady_clock::now() < std::min(limit, last)) {
        pollfd entry{out_fd_, POLLOUT, 0};
        const size_t before = outbox_.size();
        if (::poll(&entry, 1, 100) > 0) flush();
        if (outbox_.size() < before) limit = steady_clock::now() + kFarewellMax;
    }
}

int Agent::run() {
    channel_.say(kAgentGreeting);
    flush();
    while (state_ != State::kDone) {
        try {
            take_frames();  // some may have come with the verdict on this agent
            const std::vector<Watched> watched = watch();
            std::vector<pollfd> entries;
            for (const Watched& item : watched) entries.push_back({item.fd, item.events, 0});
            if (::poll(entries.data(), entries.size(), poll_timeout()) < 0 && errno != EINTR) {
                fail(ExitCode::kInternal, "poll failed: {}", errno_text(errno));
            }
            // The order is: ended processes, the launcher's frames, the workers' output. A frame
            // that starts workers moves them, so the watched ones are looked at again.
            const size_t workers_before = workers_.size();
            for (size_t i = 0; i < entries.size(); ++i) {
                if (entries[i].revents != 0) watched[i].ready();
                if (workers_.size() != workers_before || state_ == State::kDone) break;
            }
            check_time();
        } catch (const Error& error) {
            exit_code_ = static_cast<int>(error.code());
            send_problem(error.code(), error.what());
            begin_end();
            in_fd_ = -1;
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
