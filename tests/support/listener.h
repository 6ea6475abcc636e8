// Sockets of the loopback interface: one listens on a free port, and one connects to a port.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "base/fd.h"
#include "support/catch.h"

namespace dslaunch::test {

struct Listener {
    UniqueFd fd;
    int port = 0;
};

inline Listener listen_on_loopback() {
    Listener result{UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(result.fd.get(), any, length) == 0);
    REQUIRE(::listen(result.fd.get(), 16) == 0);
    REQUIRE(::getsockname(result.fd.get(), any, &length) == 0);
    result.port = ntohs(address.sin_port);
    return result;
}

// Returns a stream socket that is connected to 127.0.0.1:PORT; not valid if nobody listens there.
inline UniqueFd connect_to(int64_t port) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
        socket.reset();
    return socket;
}

// Returns a stream socket that is connected to 127.0.0.1:PORT, where somebody must listen.
inline UniqueFd connected_to(int64_t port) {
    UniqueFd socket = connect_to(port);
    REQUIRE(socket.valid());
    return socket;
}

}  // namespace dslaunch::test
