#include "launch/transport/join/join_endpoint.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "launch/hosts/hostfile.h"
#include "launch/network/interfaces.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kBacklog = 4096;
constexpr int kAnyPort = 9;  // peer port of a datagram socket; nothing is sent

std::string with_port(const std::string& host, int port) {
    const bool is_v6 = host.find(':') != std::string::npos;
    return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1";
}

}  // namespace

std::string JoinEndpoint::text() const {
    return is_unix() ? std::string(kUnix) + unix_path : with_port(host, port);
}

JoinEndpoint parse_join_endpoint(std::string_view text) {
    JoinEndpoint endpoint;
    const auto bad = [&](const char* why) {
        fail(ExitCode::kUsage, "`{}` {}; write HOST:PORT, [IPv6]:PORT or unix:PATH",
             printable(text), why);
    };
    if (text.starts_with(kUnix)) {
        endpoint.unix_path = text.substr(kUnix.size());
        if (endpoint.unix_path.size() >= sizeof(sockaddr_un{}.sun_path)) {
            bad("is too long for a Unix socket (107 characters)");
        }
        if (endpoint.unix_path.empty() || endpoint.unix_path.front() != '/') {
            bad("has no absolute path");
        }
        return endpoint;
    }
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) bad("has no port");
    const std::string host(text.substr(0, colon));
    const auto port = parse_int(text.substr(colon + 1));
    if (!port || *port < 1 || *port > 65'535) bad("has no port from 1 to 65535");
    if (!is_host_name(host)) bad("has no host name or address before the port");
    endpoint.host = host.front() == '[' ? host.substr(1, host.size() - 2) : host;
    endpoint.port = static_cast<int>(*port);
    return endpoint;
}

JoinListener::JoinListener(const JoinEndpoint& endpoint) : endpoint_(endpoint) {
    if (endpoint_.is_unix()) {
        bind_unix();
    } else {
        bind_tcp();
    }
}

JoinListener JoinListener::in_private_folder() {
    const char* runtime = std::getenv("XDG_RUNTIME_DIR");
    std::string name = runtime != nullptr && runtime[0] == '/' && ::access(runtime, W_OK) == 0
                           ? std::string(runtime)
                           : std::string("/tmp");
    // A path that leaves no room for the socket's name cannot be used.
    if (name.size() > sizeof(sockaddr_un{}.sun_path) - 32) name = "/tmp";
    name += "/dslaunch-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
        fail(ExitCode::kSetup, "cannot make a folder {}: {}", name, errno_text(errno));
    }
    JoinListener listener;
    listener.folder_ = name;
    listener.endpoint_.unix_path = name + "/join";
    listener.bind_unix();
    return listener;
}

JoinListener::~JoinListener() {
    close();
}

void JoinListener::close() {
    if (!socket_.valid()) return;
    socket_.reset();
    if (endpoint_.is_unix()) ::unlink(endpoint_.unix_path.c_str());
    if (!folder_.empty()) ::rmdir(folder_.c_str());
}

void JoinListener::bind_unix() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, endpoint_.unix_path.c_str(), endpoint_.unix_path.size());
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid() ||
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::chmod(endpoint_.unix_path.c_str(), 0600) != 0 || ::listen(socket.get(), kBacklog) != 0) {
        fail(ExitCode::kSetup, "cannot listen on {}: {}", endpoint_.text(), errno_text(errno));
    }
    socket_ = std::move(socket);
}

void JoinListener::bind_tcp() {
    std::string error;
    const auto list = look_up(endpoint_.host, endpoint_.port, AI_PASSIVE, &error);
    if (!list)
        fail(ExitCode::kSetup, "the address `{}` to listen on does not resolve: {}",
             printable(endpoint_.host), error);
    socket_ = listen_at(*list, endpoint_.port, error);
    if (!socket_.valid())
        fail(ExitCode::kSetup, "cannot listen for agents on {}: {}; choose another --listen",
             endpoint_.text(), error);
    set_blocking(socket_.get(), false);
    int64_t port = endpoint_.port;
    static_cast<void>(local_address(socket_.get(), &port));
    endpoint_.port = static_cast<int>(port);
}

std::string address_facing(const std::vector<HostAddress>& hosts) {
    std::string own = "127.0.0.1";
    for (const HostAddress& host : hosts) {
        const auto list = look_up(host.address.empty() ? host.name : host.address, kAnyPort);
        if (!list) continue;
        const UniqueFd socket(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0) continue;
        const std::string address = local_address(socket.get());
        if (address.empty() || is_loopback(address)) continue;
        own = address;
        if (address_text(*list->ai_addr) != address) return address;  // a different machine
    }
    return own;
}

std::string peer_text(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (::getpeername(fd, generic, &length) != 0) return "unknown";
    int64_t port = 0;
    const std::string host = address_text(*generic, &port);
    if (!host.empty()) return with_port(host, static_cast<int>(port));
    ucred credentials{};
    length = sizeof credentials;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return "unknown";
    return fmt::format("uid {}, pid {}", credentials.uid, credentials.pid);
}

bool is_own_peer(int fd) {
    ucred credentials{};
    socklen_t length = sizeof credentials;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
           (credentials.uid == ::geteuid() || credentials.uid == 0);
}

}  // namespace dslaunch::launch
