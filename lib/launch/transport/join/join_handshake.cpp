#include "launch/transport/join/join_handshake.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/wire.h"
#include "launch/network/interfaces.h"
#include "launch/process/spawn.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The beginning of kJoinOpening, which is the same in every version.
constexpr std::string_view kFamily = "dslaunch-join ";
constexpr size_t kLengthBytes = 4;
constexpr char kJoined = 0;
constexpr char kRefused = 1;

std::string refusal(const std::string& reason) {
    WireWriter writer;
    writer.u8(kRefused).string(std::string_view(reason).substr(0, kJoinRefusalBytesMax));
    return writer.bytes();
}

// Returns the string of at most BYTES_MAX bytes that begins at AT; nothing if it has not arrived
// completely.
std::optional<std::string_view> string_at(std::string_view bytes, size_t at, size_t bytes_max) {
    if (bytes.size() < at + kLengthBytes) return std::nullopt;
    const size_t length = WireReader(bytes.substr(at, kLengthBytes), "a length").u32();
    if (length > bytes_max)
        fail(ExitCode::kInternal, "received a text of {} bytes, which is too long", length);
    if (bytes.size() < at + kLengthBytes + length) return std::nullopt;
    return bytes.substr(at + kLengthBytes, length);
}

// Returns true if TEXT may be the beginning of an opening, of any version.
bool may_be_opening(std::string_view text) {
    const size_t length = std::min(text.size(), kFamily.size());
    return text.substr(0, length) == kFamily.substr(0, length);
}

// Moves bytes from REST to OPENING until the opening is complete.
void fill_opening(std::string& opening, std::string_view& rest) {
    const size_t length = std::min(rest.size(), kJoinOpening.size() - opening.size());
    opening.append(rest.substr(0, length));
    rest.remove_prefix(length);
}

constexpr milliseconds kConnectMax{10'000};  // limit of one attempt
constexpr milliseconds kAnswerMax{10'000};   // limit of the wait for the launcher's next frame
constexpr milliseconds kSayAgain{30'000};    // interval at which a long wait is reported

// One attempt to connect. If it ended without a verdict, a further attempt may succeed.
struct Attempt {
    UniqueFd socket;
    std::string trouble;  // why there is no connection; else empty
};

// Waits for EVENTS on FD until UNTIL; returns false if the time is over.
bool ready_by(int fd, short events, steady_clock::time_point until) {
    for (;;) {
        const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
        pollfd entry{fd, events, 0};
        const int n = ::poll(&entry, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
        if (n > 0) return true;
        if (n == 0 || errno != EINTR) return false;
    }
}

Attempt connect_to(const sockaddr* address, socklen_t length, milliseconds limit) {
    Attempt attempt;
    attempt.socket =
        UniqueFd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error_number = 0;
    if (::connect(attempt.socket.get(), address, length) != 0) error_number = errno;
    if (error_number == EINPROGRESS) {
        if (!ready_by(attempt.socket.get(), POLLOUT, steady_clock::now() + limit)) {
            error_number = ETIMEDOUT;
        } else {
            socklen_t size = sizeof error_number;
            ::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error_number, &size);
        }
    }
    if (error_number != 0) attempt.trouble = errno_text(error_number);
    return attempt;
}

Attempt connect_unix(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return {{}, errno_text(errno)};
    const bool is_ours = status.st_uid == ::geteuid() || status.st_uid == 0;
    if (!S_ISSOCK(status.st_mode) || !is_ours || (status.st_mode & 077) != 0) {
        fail(ExitCode::kUsage,
             "unix:{}: expected a socket of this user that no other user can access (found owner "
             "{}, mode {:03o})",
             printable(path), status.st_uid, status.st_mode & 0777);
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    return connect_to(reinterpret_cast<const sockaddr*>(&address), sizeof address, kConnectMax);
}

Attempt connect_tcp(const JoinEndpoint& endpoint, milliseconds limit) {
    std::string error;
    const auto list = look_up(endpoint.host, endpoint.port, 0, &error);
    if (!list) return {{}, fmt::format("`{}`: {}", endpoint.host, error)};
    Attempt attempt;
    for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
        attempt = connect_to(entry->ai_addr, entry->ai_addrlen, std::min(limit, kConnectMax));
        if (attempt.trouble.empty()) break;
    }
    return attempt;
}

// Performs the handshake. Returns an empty string if the agent has joined, or the reason why the
// connection ended without a decision of the launcher. Throws Error{kHosts} after a refusal.
std::string shake_hands(int socket, const JoinRequest& request, AgentHandshake& handshake) {
    using State = AgentHandshake::State;
    char block[kJoinBytesMax];
    for (;;) {
        const std::string output = handshake.take_output();
        if (!output.empty() && ::send(socket, output.data(), output.size(), MSG_NOSIGNAL) !=
                                   static_cast<ssize_t>(output.size())) {
            return errno_text(errno);
        }
        if (!ready_by(socket, POLLIN, steady_clock::now() + kAnswerMax)) {
            return fmt::format("no answer within {} s", kAnswerMax.count() / 1000);
        }
        const ssize_t n = ::recv(socket, block, sizeof block, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return n == 0 ? "the connection was closed" : errno_text(errno);
        switch (handshake.feed(std::string_view(block, static_cast<size_t>(n)))) {
            case State::kRunning:
                break;
            case State::kJoined:
                return {};
            case State::kRefused:
                fail(ExitCode::kHosts, "the launcher at {} refuses this agent: {}",
                     request.endpoint.text(), handshake.reason());
            case State::kNotLauncher:
                return handshake.reason();
        }
    }
}

// A guard that removes the Unix socket even if the agent cannot join. No other program would remove
// the socket.
class SocketRemoval {
  public:
    explicit SocketRemoval(const JoinRequest& request)
        : path_(request.removes_socket ? request.endpoint.unix_path : std::string()) {}
    SocketRemoval(const SocketRemoval&) = delete;
    SocketRemoval& operator=(const SocketRemoval&) = delete;
    ~SocketRemoval() {
        if (!path_.empty()) ::unlink(path_.c_str());
    }

  private:
    std::string path_;
};

}  // namespace

LauncherHandshake::LauncherHandshake(const JoinKey& key)
    : JoinHandshake(JoinSide::kLauncher, key) {}

LauncherHandshake::State LauncherHandshake::feed(std::string_view bytes) {
    DSL_CHECK(state_ == State::kRunning, "bytes nobody wanted");
    bytes_ += bytes.size();
    if (bytes_ > kJoinBytesMax) return end(State::kStranger, "it did not identify itself");
    if (!is_opened_) {
        fill_opening(opening_, bytes);
        if (!may_be_opening(opening_)) return end(State::kStranger, "it uses another protocol");
        if (opening_.size() < kJoinOpening.size()) return state_;
        take_opening();
        if (!is_opened_) return state_;
    }
    try {
        channel_.receive(bytes);
        said_ += channel_.take_received();
        if (channel_.proven()) take_identity();
    } catch (const Error& error) {
        end(State::kRefused, error.what());
    }
    return state_;
}

void LauncherHandshake::take_opening() {
    if (opening_ == kJoinOpening) {
        is_opened_ = true;
        output_ = kJoinOpening;
        return;
    }
    const std::string reason = fmt::format(
        "this launcher ({}) uses join protocol 1, but the agent uses another; install the same "
        "dslaunch for both",
        DSL_VERSION);
    output_ = refusal(reason);
    end(State::kRefused, reason);
}

void LauncherHandshake::take_identity() {
    const auto bytes = string_at(said_, 0, kJoinIdentityBytesMax);
    if (!bytes) return;
    identity_ = decode<JoinIdentity>(*bytes);
    channel_.put_back(std::string_view(said_).substr(kLengthBytes + bytes->size()));
    state_ = State::kProven;
}

void LauncherHandshake::accept() {
    DSL_CHECK(state_ == State::kProven, "only a proven agent is accepted");
    channel_.say(std::string_view(&kJoined, 1));
}

void LauncherHandshake::refuse(const std::string& reason) {
    DSL_CHECK(state_ == State::kProven,
              "an agent that has not proven its token cannot be refused through the channel");
    channel_.say(refusal(reason));
    end(State::kRefused, reason);
}

LauncherHandshake::State LauncherHandshake::end(State state, const std::string& reason) {
    reason_ = reason;
    if (state == State::kStranger) output_.clear();
    return state_ = state;
}

AgentHandshake::AgentHandshake(const JoinKey& key, const JoinIdentity& identity)
    : JoinHandshake(JoinSide::kAgent, key), identity_bytes_(encode(identity)) {
    output_ = kJoinOpening;
    DSL_CHECK(identity_bytes_.size() <= kJoinIdentityBytesMax, "an identity of {} bytes",
              identity_bytes_.size());
}

AgentHandshake::State AgentHandshake::feed(std::string_view bytes) {
    DSL_CHECK(state_ == State::kRunning, "bytes nobody wanted");
    bytes_ += bytes.size();
    if (!is_opened_) {
        if (bytes_ > kJoinBytesMax)
            return end(State::kNotLauncher,
                       "the program that answers there sent data that cannot be read");
        fill_opening(opening_, bytes);
        if (take_opening() != State::kRunning || !is_opened_) return state_;
    }
    try {
        channel_.receive(bytes);
        said_ += channel_.take_received();
        if (channel_.proven()) return take_verdict();
    } catch (const Error& error) {
        return end(State::kNotLauncher, error.what());
    }
    return state_;
}

// Handles the launcher's first bytes: an opening, or an unencrypted refusal. The first byte of a
// refusal differs from the first byte of an opening.
AgentHandshake::State AgentHandshake::take_opening() {
    if (opening_.empty()) return state_;
    if (opening_.front() == kRefused) {
        return end(State::kNotLauncher,
                   "the launcher there uses another version; install the same dslaunch for both");
    }
    if (!may_be_opening(opening_)) {
        return end(State::kNotLauncher,
                   "the program that answers there is not a dslaunch that waits for agents");
    }
    if (opening_.size() < kJoinOpening.size()) return state_;
    if (opening_ != kJoinOpening) {
        return end(State::kNotLauncher,
                   "the launcher there uses another version; install the same dslaunch for both");
    }
    is_opened_ = true;
    return state_;
}

AgentHandshake::State AgentHandshake::take_verdict() {
    if (!std::exchange(is_introduced_, true)) {
        WireWriter writer;
        writer.string(identity_bytes_);
        channel_.say(writer.bytes());
    }
    if (said_.empty()) return state_;
    if (said_.front() == kJoined) {
        channel_.put_back(std::string_view(said_).substr(1));
        return state_ = State::kJoined;
    }
    const auto reason = string_at(said_, 1, kJoinRefusalBytesMax);
    if (!reason) return state_;
    return end(State::kRefused, printable(*reason));
}

AgentHandshake::State AgentHandshake::end(State state, std::string reason) {
    reason_ = std::move(reason);
    return state_ = state;
}

JoinedLauncher join_launcher(const JoinRequest& request) {
    const SocketRemoval removal(request);
    const JoinKey key(request.token);
    const auto deadline = steady_clock::now() + request.connect_max;
    auto say_at = steady_clock::now();
    std::string said;
    for (int number = 1;; ++number) {
        const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
        Attempt attempt = request.endpoint.is_unix()
                              ? connect_unix(request.endpoint.unix_path)
                              : connect_tcp(request.endpoint, std::max(left, milliseconds(100)));
        if (attempt.trouble.empty()) {
            const int fd = attempt.socket.get();
            const int on = 1;
            ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            AgentHandshake handshake(key, request.identity);
            attempt.trouble = shake_hands(fd, request, handshake);
            if (attempt.trouble.empty()) {
                set_blocking(fd, true);
                const std::string address = local_address(fd);
                return {std::move(attempt.socket), handshake.take_channel(), address};
            }
        }
        const auto now = steady_clock::now();
        const milliseconds pause = backoff_delay(number);
        if (now + pause >= deadline) {
            fail(ExitCode::kHosts,
                 "no launcher at {} within {} s: {}; is it running, and does it listen there?",
                 request.endpoint.text(),
                 std::chrono::duration<double>(request.connect_max).count(), attempt.trouble);
        }
        if (now >= say_at || attempt.trouble != said) {
            say_at = now + kSayAgain;
            said = attempt.trouble;
            log_info("agent", "waiting for the launcher at {}: {}", request.endpoint.text(),
                     attempt.trouble);
        }
        std::this_thread::sleep_for(pause);
    }
}

}  // namespace dslaunch::launch
