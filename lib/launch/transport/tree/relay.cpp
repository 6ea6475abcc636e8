#include "launch/transport/tree/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"
#include "launch/transport/tree/relay_messages.h"
#include "launch/transport/tree/tree_transport.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kCompactBytes = 1U << 20;
constexpr milliseconds kTick{500};

constexpr milliseconds kEndMax{500};

// A program on this machine as a stream: its stdin and stdout are one socket here, its stderr is
// ours. Never blocks, except to wait for the program's end.
class ChildStream {
  public:
    // Starts the program with our environment. Throws Error{kSetup} if that fails.
    explicit ChildStream(const std::vector<std::string>& command);
    ChildStream(const ChildStream&) = delete;
    ChildStream& operator=(const ChildStream&) = delete;
    // Closes the program's stdin and stdout, which makes an agent end; does not wait for its end.
    ~ChildStream() = default;

    [[nodiscard]] int fd() const { return socket_.get(); }  // -1: it has ended
    [[nodiscard]] bool wants_to_write() const { return !outbox_.empty(); }
    void send(std::string_view bytes);  // queues bytes that cannot be sent now
    void flush();
    void close_input();  // after the queued bytes
    // Returns some bytes of the program's stdout. Returns an empty text if there are none now, or
    // if the program has ended. If it has ended, fd() is -1.
    [[nodiscard]] std::string read_some();
    // Returns the program's exit status, 128+n for a signal. If it has not ended after half a
    // second, kills it and returns -1. REQUIRES: fd() is -1.
    [[nodiscard]] int take_status();

  private:
    pid_t pid_ = -1;
    UniqueFd socket_;
    std::string outbox_;
    bool close_when_sent_ = false;
};

ChildStream::ChildStream(const std::vector<std::string>& command) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        fail(ExitCode::kSetup, "cannot make a socket pair: {}", errno_text(errno));
    }
    socket_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    SpawnRequest request;
    request.command = command;
    request.stdin_fd = theirs.get();
    request.stdout_fd = theirs.get();
    request.stderr_fd = STDERR_FILENO;
    const SpawnResult result = spawn(request);
    if (result.pid < 0) fail(ExitCode::kSetup, "{}", result.error);
    pid_ = result.pid;
}

void ChildStream::send(std::string_view bytes) {
    if (!socket_.valid()) return;
    outbox_.append(bytes);
    flush();
}

void ChildStream::flush() {
    if (!socket_.valid() || send_now(socket_.get(), outbox_) == Sending::kLater) return;
    // If the program has closed its end, reading from the socket returns its last output and then
    // the end.
    outbox_.clear();
    if (close_when_sent_) ::shutdown(socket_.get(), SHUT_WR);
}

void ChildStream::close_input() {
    close_when_sent_ = true;
    flush();
}

std::string ChildStream::read_some() {
    std::string bytes(kReadBytes, '\0');
    for (;;) {
        const ssize_t n = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0 || (n < 0 && errno != EAGAIN)) socket_.reset();
        bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
        return bytes;
    }
}

int ChildStream::take_status() {
    return wait_or_kill(pid_, kEndMax).value_or(-1);
}

// Makes the transport for one of the kinds that is_known(TransportKind) accepts.
std::unique_ptr<Transport> transport_below(const RelayHosts& hosts) {
    if (hosts.transport == TransportKind::kLocal) return make_local_transport();
    if (hosts.transport == TransportKind::kSsh) return make_ssh_transport(hosts.ssh_config_path);
    return make_openssh_transport(hosts.ssh_config_path);
}

// In this class, index 0 is the agent of this host, and index i > 0 is host i - 1 of below_.
class Relay {
  public:
    Relay(int in_fd, int out_fd, LauncherLease lease);
    void run();

  private:
    void begin(const RelayHosts& hosts);
    void read_input();
    void handle(const RelayFrame& frame);
    void read_own_agent();
    void take(const TransportEvent& event);
    void forward(uint32_t place, std::string_view bytes);
    void hold(uint32_t place, bool held);
    void end(uint32_t place, const std::string& cause, int exit_status);
    void watch(int fd, uint32_t wanted, std::optional<uint32_t>& known);
    void watch_all();
    void send(RelayFrameKind kind, std::string_view payload = {});
    void flush();
    [[nodiscard]] std::string check_lease();
    [[nodiscard]] uint32_t checked(uint32_t place) const;

    int in_fd_;
    int out_fd_;
    UniqueFd epoll_;  // watches our own descriptors; the transport waits for it too
    std::optional<uint32_t> watched_in_, watched_out_, watched_agent_;
    RelayDecoder frames_{false};
    std::string outbox_;
    size_t sent_ = 0;
    std::optional<ChildStream> agent_;
    bool agent_ended_ = false;
    std::unique_ptr<Transport> below_;  // null until the hosts are known, and if this relay has
                                        // only one host
    std::vector<int64_t> windows_;      // by place: bytes that may still be sent upwards
    bool over_ = false;
    LauncherSilence silence_;
};

Relay::Relay(int in_fd, int out_fd, LauncherLease lease)
    : in_fd_(in_fd),
      out_fd_(out_fd),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      silence_(std::move(lease)) {
    if (!epoll_.valid()) fail(ExitCode::kSetup, "epoll_create1: {}", errno_text(errno));
    outbox_ = kRelayGreeting;
    send(RelayFrameKind::kHello, encode(RelayHello{kRelayProtocolVersion, DSL_VERSION}));
    // This host is always the first of the hosts, so its agent starts before the others are known.
    agent_.emplace(
        std::vector<std::string>{"/proc/self/exe", "agent", "--stdio", "--same-machine"});
}

void Relay::send(RelayFrameKind kind, std::string_view payload) {
    outbox_.append(relay_frame(kind, payload));
    flush();
}

void Relay::flush() {
    while (sent_ < outbox_.size()) {
        const ssize_t n = ::write(out_fd_, outbox_.data() + sent_, outbox_.size() - sent_);
        if (n > 0) {
            sent_ += static_cast<size_t>(n);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            over_ = true;  // nobody reads any more
            return;
        }
    }
    if (sent_ == outbox_.size() || sent_ > kCompactBytes) {
        outbox_.erase(0, std::exchange(sent_, 0));
    }
}

uint32_t Relay::checked(uint32_t place) const {
    if (place >= windows_.size()) {
        fail(ExitCode::kInternal, "a relay of {} hosts received a frame for host index {}",
             windows_.size(), place);
    }
    return place;
}

void Relay::begin(const RelayHosts& hosts) {
    if (!windows_.empty()) fail(ExitCode::kInternal, "a relay received its list of hosts twice");
    windows_.assign(hosts.hosts.size(), kRelayWindowBytes);
    if (hosts.hosts.size() == 1) return;
    if (!hosts.ssh_config_path.empty() && ::access(hosts.ssh_config_path.c_str(), R_OK) != 0) {
        const std::string cause = fmt::format(
            "cannot read the ssh configuration {} on the relay {}: {}; a relay reads this file on "
            "its own host: copy the file to the same path there, or give --fanout 0",
            hosts.ssh_config_path, hosts.hosts.front().name, errno_text(errno));
        for (uint32_t place = 1; place < windows_.size(); ++place) {
            end(place, cause, static_cast<int>(ExitCode::kSetup));
        }
        return;
    }
    TreeOptions options;
    options.transport = hosts.transport;
    options.ssh_config_path = hosts.ssh_config_path;
    options.fanout = hosts.fanout;
    options.tried_from = hosts.hosts.front().name;
    below_ = make_tree_transport(transport_below(hosts), options);
    below_->start({hosts.hosts.begin() + 1, hosts.hosts.end()});
}

void Relay::read_input() {
    char block[kReadBytes];
    const ssize_t n = ::read(in_fd_, block, sizeof block);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        over_ = true;
        return;
    }
    silence_.end(steady_clock::now());
    frames_.append(std::string_view(block, static_cast<size_t>(n)));
    while (const auto frame = frames_.next()) handle(*frame);
}

void Relay::handle(const RelayFrame& frame) {
    switch (frame.kind) {
        case RelayFrameKind::kHosts:
            return begin(decode<RelayHosts>(frame.payload));
        case RelayFrameKind::kInput: {
            const auto input = decode<RelayBytes>(frame.payload);
            if (checked(input.place) == 0) return agent_->send(input.bytes);
            if (below_) below_->send(input.place - 1, input.bytes);
            return;
        }
        case RelayFrameKind::kCredit: {
            const auto credit = decode<RelayCredit>(frame.payload);
            int64_t& window = windows_[checked(credit.place)];
            const bool was_held = window <= 0;
            window += credit.bytes_count;
            if (was_held && window > 0) hold(credit.place, false);
            return;
        }
        case RelayFrameKind::kCloseInput: {
            const uint32_t place = checked(decode<RelayPlace>(frame.payload).place);
            if (place == 0) return agent_->close_input();
            if (below_) below_->close_input(place - 1);
            return;
        }
        case RelayFrameKind::kAbandon: {
            const uint32_t place = checked(decode<RelayPlace>(frame.payload).place);
            if (place > 0) {
                if (below_) below_->abandon(place - 1);
                return;
            }
            agent_ended_ = true;
            return agent_->close_input();
        }
        case RelayFrameKind::kPing:
            return send(RelayFrameKind::kPong);
        default:
            fail(ExitCode::kInternal, "a relay received a frame of a relay");
    }
}

// Returns the reason to treat the launcher as gone; empty if it is not gone.
std::string Relay::check_lease() {
    const auto now = steady_clock::now();
    const auto silence = silence_.look(now);
    if (silence > kPingInterval && silence_.sends_sign(now))
        send(RelayFrameKind::kPong);  // shows whether the launcher's machine still acknowledges
                                      // bytes
    return silence_.over(silence);
}

void Relay::hold(uint32_t place, bool held) {
    if (place > 0 && below_) below_->hold(place - 1, held);  // place 0: see watch_all()
}

void Relay::forward(uint32_t place, std::string_view bytes) {
    int64_t& window = windows_[place];
    const bool was_open = window > 0;
    window -= static_cast<int64_t>(bytes.size());
    if (was_open && window <= 0) hold(place, true);
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kRelayBytesMax))) {
        send(RelayFrameKind::kOutput,
             encode(RelayBytes{place, std::string(bytes.substr(0, kRelayBytesMax))}));
    }
}

void Relay::end(uint32_t place, const std::string& cause, int exit_status) {
    send(RelayFrameKind::kEnded, encode(RelayEnded{place, cause, exit_status}));
}

void Relay::read_own_agent() {
    const std::string bytes = agent_->read_some();
    if (!bytes.empty() && !agent_ended_) forward(0, bytes);
    if (agent_->fd() >= 0) return;
    const int status = agent_->take_status();
    watched_agent_.reset();
    if (!std::exchange(agent_ended_, true)) end(0, {}, status);
}

void Relay::take(const TransportEvent& event) {
    const auto place = static_cast<uint32_t>(event.host + 1);
    switch (event.kind) {
        case TransportEvent::Kind::kBytes:
            return forward(place, event.text);
        case TransportEvent::Kind::kDiagnostic:
            return send(RelayFrameKind::kDiagnostic, encode(RelayBytes{place, event.text}));
        case TransportEvent::Kind::kEnded:
            return end(place, event.text, event.exit_status);
    }
}

// Lets epoll watch FD for WANTED. KNOWN: the events watched so far; nothing if FD is not watched
// yet.
void Relay::watch(int fd, uint32_t wanted, std::optional<uint32_t>& known) {
    if (known == wanted) return;
    epoll_event event{};
    event.events = wanted;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0) {
        fail(ExitCode::kUsage, "a relay's stdin and stdout must be pipes or sockets: {}",
             errno_text(errno));
    }
    known = wanted;
}

void Relay::watch_all() {
    watch(in_fd_, EPOLLIN, watched_in_);
    watch(out_fd_, sent_ < outbox_.size() ? EPOLLOUT : 0U, watched_out_);
    // The agent's first output is not read until the relay has received its hosts.
    if (agent_->fd() < 0 || windows_.empty()) return;
    const bool may_read = agent_ended_ || windows_[0] > 0;
    watch(agent_->fd(), (may_read ? EPOLLIN : 0U) | (agent_->wants_to_write() ? EPOLLOUT : 0U),
          watched_agent_);
}

void Relay::run() {
    while (!over_) {
        watch_all();
        if (below_) {
            for (const TransportEvent& event : below_->wait(kTick, epoll_.get())) take(event);
        } else {
            pollfd entry{epoll_.get(), POLLIN, 0};
            ::poll(&entry, 1, static_cast<int>(kTick.count()));
        }
        epoll_event ready[3];
        const int ready_count = ::epoll_wait(epoll_.get(), ready, 3, 0);
        for (int i = 0; i < ready_count && !over_; ++i) {
            const int fd = ready[i].data.fd;
            if (fd == in_fd_) read_input();
            if (fd == out_fd_ && (ready[i].events & (EPOLLERR | EPOLLHUP)) != 0) over_ = true;
            if (fd == out_fd_) flush();
            if (fd == agent_->fd() && agent_->wants_to_write()) agent_->flush();
            if (fd == agent_->fd() && (ready[i].events & ~EPOLLOUT) != 0) read_own_agent();
        }
        const std::string over = check_lease();
        if (!over.empty()) return log_error("relay", "{}; ending", over);
    }
}

}  // namespace

int run_relay(int in_fd, int out_fd, LauncherLease lease) {
    ::signal(SIGPIPE, SIG_IGN);
    ::fcntl(in_fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(out_fd, F_SETFD, FD_CLOEXEC);
    set_blocking(out_fd, false);
    Relay(in_fd, out_fd, std::move(lease)).run();
    return 0;
}

}  // namespace dslaunch::launch
