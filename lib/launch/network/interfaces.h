// The network interfaces of this machine and their addresses; names looked up, and sockets that
// listen. No threads.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/network/network.h"

namespace dslaunch::launch {

// Every IPv4 and IPv6 address, in the kernel's order; empty when it tells none.
[[nodiscard]] std::vector<InterfaceAddress> list_interfaces();

// The interface among ADDRESSES that has ADDRESS (digits); empty: none.
[[nodiscard]] std::string interface_of(const std::vector<InterfaceAddress>& addresses,
                                       const std::string& address);

// True: an interface of this name is one that Docker, Kubernetes or a virtual machine brings.
[[nodiscard]] bool is_for_guests(const std::string& interface);

// True: an address that HOST resolves to belongs to an interface of this machine. Blocks as DNS
// does.
[[nodiscard]] bool is_own_address(const std::string& host);

// The socket addresses of HOST, a name or an address, for streams; null, with the reason in ERROR,
// when there are none. FLAGS: of getaddrinfo(). Blocks as DNS does, unless they ask for digits
// alone. ERROR may be null.
[[nodiscard]] std::shared_ptr<addrinfo> look_up(const std::string& host, int64_t port,
                                                int flags = 0, std::string* error = nullptr,
                                                int family = AF_UNSPEC);

// A socket that listens at PLACE, close-on-exec. Not valid: ERROR says why, and by whom PORT is
// taken where that can be seen.
[[nodiscard]] UniqueFd listen_at(const addrinfo& place, int64_t port, std::string& error);

// An address of the internet families in digits, without scope, an IPv4 address within IPv6 as
// itself; empty: it is none. PORT may be null.
[[nodiscard]] std::string address_text(const sockaddr& address, int64_t* port = nullptr);

// The local address of a socket, as address_text(); empty also when every address is meant.
[[nodiscard]] std::string local_address(int socket, int64_t* port = nullptr);

}  // namespace dslaunch::launch
