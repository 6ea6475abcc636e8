#include "launch/transport/join/join_endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "launch/hosts/hostfile.h"
#include "launch/machine/port_owner.h"
#include "launch/network/interfaces.h"

namespace dslaunch::launch {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kBacklog = 4096;
// The port to which a datagram socket is pointed; nothing is sent.
constexpr const char* kAnyPort = "9";

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

AddressList look_up(const std::string& host, const std::string& port, int flags, int type,
                    std::string& error) {
    addrinfo hints{};
    hints.ai_socktype = type;
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    const int status = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
    if (status != 0) {
        error = ::gai_strerror(status);
        list = nullptr;
    }
    return {list, ::freeaddrinfo};
}

// "address" and port of a socket address of the internet families.
std::pair<std::string, int> numeric(const sockaddr_storage& address) {
    char text[INET6_ADDRSTRLEN] = {};
    if (address.ss_family == AF_INET6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
            ::inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text, sizeof text);
        } else {
            ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
        }
        return {text, ntohs(v6->sin6_port)};
    }
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return {text, ntohs(v4->sin_port)};
}

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
            bad("names no absolute path");
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
    // A path that leaves no room for the socket's name is of no use.
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
    const AddressList list =
        look_up(endpoint_.host, std::to_string(endpoint_.port), AI_PASSIVE, SOCK_STREAM, error);
    if (!list) {
        fail(ExitCode::kSetup, "the address `{}` to listen on does not resolve: {}",
             printable(endpoint_.host), error);
    }
    UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!socket.valid() || ::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
        ::listen(socket.get(), kBacklog) != 0) {
        const int error_number = errno;
        const std::string holder =
            error_number == EADDRINUSE ? describe_port_owner(endpoint_.port) : std::string();
        fail(ExitCode::kSetup, "cannot listen for agents on {}: {}{}; choose another --listen",
             endpoint_.text(), errno_text(error_number), holder.empty() ? "" : ", by " + holder);
    }
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0) {
        endpoint_.port = numeric(address).second;
    }
    socket_ = std::move(socket);
}

std::string address_facing(const std::vector<HostAddress>& hosts) {
    std::string own = "127.0.0.1";
    for (const HostAddress& host : hosts) {
        std::string error;
        const AddressList list = look_up(host.address.empty() ? host.name : host.address, kAnyPort,
                                         0, SOCK_DGRAM, error);
        if (!list) continue;
        const UniqueFd socket(::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0) continue;
        const std::string address = local_address(socket.get());
        if (address.empty() || is_loopback(address)) continue;
        sockaddr_storage there{};
        std::memcpy(&there, list->ai_addr, list->ai_addrlen);
        own = address;
        if (numeric(there).first != address) return address;  // this one is another machine
    }
    return own;
}

std::string peer_text(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "unknown";
    if (address.ss_family != AF_UNIX) {
        const auto [host, port] = numeric(address);
        return with_port(host, port);
    }
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
