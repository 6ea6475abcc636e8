#include "launch/transport/join/join_client.h"

#include <fmt/format.h>
#include <netdb.h>
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
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/network/interfaces.h"
#include "launch/process/blocking.h"
#include "launch/transport/backoff.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kConnectMax{10'000};  // limit of one attempt
constexpr milliseconds kAnswerMax{10'000};   // limit of the wait for the launcher's next frame
constexpr milliseconds kSayAgain{30'000};    // interval at which a long wait is reported

// The reason why an attempt did not come to a verdict; another may.
struct Attempt {
    UniqueFd socket;
    std::string trouble;  // not empty: no connection
};

// Waits for EVENTS on FD until UNTIL.
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
             "unix:{}: not a socket of this user that nobody else may use (owner {}, mode {:03o})",
             printable(path), status.st_uid, status.st_mode & 0777);
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    return connect_to(reinterpret_cast<const sockaddr*>(&address), sizeof address, kConnectMax);
}

Attempt connect_tcp(const JoinEndpoint& endpoint, milliseconds limit) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const std::string port = std::to_string(endpoint.port);
    if (const int status = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
        status != 0) {
        return {{}, fmt::format("`{}`: {}", endpoint.host, ::gai_strerror(status))};
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
    Attempt attempt;
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        attempt = connect_to(entry->ai_addr, entry->ai_addrlen, std::min(limit, kConnectMax));
        if (attempt.trouble.empty()) break;
    }
    return attempt;
}

// Empty: joined. Otherwise why the connection ended before a verdict of the launcher.
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

}  // namespace

namespace {

// The socket goes also when there is no joining: nobody else would come for it.
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
