#include "server/http/listening_port.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::server {

namespace {

constexpr int kBacklog = 1024;  // connections that wait to be accepted
constexpr int kFirstFreePort = 1024;

}  // namespace

ListeningPort listen_on(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
    std::string why = error != 0 ? ::gai_strerror(error) : "";
    for (const addrinfo* at = error == 0 ? found : nullptr; at != nullptr; at = at->ai_next) {
        UniqueFd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        // SO_REUSEPORT is not set, because it could let a second server share the port.
        const int on = 1;
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        sockaddr_storage address{};
        socklen_t bytes = sizeof address;
        if (::bind(socket.get(), at->ai_addr, at->ai_addrlen) != 0 ||
            ::listen(socket.get(), kBacklog) != 0 ||
            ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
            why = errno_text(errno);
            continue;
        }
        return {std::move(socket),
                ntohs(address.ss_family == AF_INET6
                          ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                          : reinterpret_cast<const sockaddr_in&>(address).sin_port)};
    }
    fail(ExitCode::kSetup,
         "cannot listen on {}:{} ({}): the port is in use (by another `dslaunch serve`?), or the "
         "address does not belong to this machine{}; use another --port or --host",
         printable(host), port, why,
         port > 0 && port < kFirstFreePort ? ", or ports below 1024 need root" : "");
}

}  // namespace dslaunch::server
