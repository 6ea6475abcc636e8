#include "runtime/comm_gloo/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/fd.h"

namespace dslaunch::runtime {

namespace {

std::string digits(const sockaddr_storage& address, socklen_t length) {
    char text[NI_MAXHOST] = {};
    const int status = ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text,
                                     sizeof text, nullptr, 0, NI_NUMERICHOST);
    return status == 0 ? text : "";
}

}  // namespace

std::string bound_address(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return {};
    const std::string text = digits(address, length);
    return text == "0.0.0.0" || text == "::" ? "" : text;
}

std::string address_that_reaches(const std::string& host) {
    addrinfo wanted{};
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (const int status = ::getaddrinfo(host.c_str(), "9", &wanted, &found); status != 0)
        fail(ExitCode::kHosts, "the master's address {} does not resolve: {}", host,
             ::gai_strerror(status));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
    int last_error = 0;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
        const UniqueFd probe(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        // connect() on a datagram socket sends nothing: it only chooses a route, and thereby the
        // local address.
        if (!probe.valid() || ::connect(probe.get(), one->ai_addr, one->ai_addrlen) != 0) {
            last_error = errno;
            continue;
        }
        return bound_address(probe.get());
    }
    fail(ExitCode::kHosts, "no route to the master's address {}: {}", host, errno_text(last_error));
}

bool is_loopback(const std::string& address) {
    return address.rfind("127.", 0) == 0 || address == "::1";
}

}  // namespace dslaunch::runtime
