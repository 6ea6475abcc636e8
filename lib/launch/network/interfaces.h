// The network interfaces of this machine and their addresses, look-ups of names, and listening
// sockets. No threads.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/network/network.h"

namespace dslaunch::launch {

// Returns every IPv4 and IPv6 address in the kernel's order; empty if it tells no address.
[[nodiscard]] std::vector<InterfaceAddress> list_interfaces();

// Returns the interface among ADDRESSES that has ADDRESS (digits); empty: no interface.
[[nodiscard]] std::string interface_of(const std::vector<InterfaceAddress>& addresses,
                                       const std::string& address);

// Returns true if Docker, Kubernetes or a virtual machine brings an interface of this name.
[[nodiscard]] bool is_for_guests(const std::string& interface);

// Returns true if HOST resolves to an address of an interface of this machine. Blocks as DNS does.
[[nodiscard]] bool is_own_address(const std::string& host);

// Returns the socket addresses of HOST, a name or an address, for streams; null, with the reason in
// ERROR (may be null), when there are none. FLAGS: of getaddrinfo(). Blocks as DNS does, unless
// they ask for digits alone.
[[nodiscard]] std::shared_ptr<addrinfo> look_up(const std::string& host, int64_t port,
                                                int flags = 0, std::string* error = nullptr,
                                                int family = AF_UNSPEC);

// Opens a close-on-exec socket that listens at PLACE. Not valid: ERROR says why, and who has taken
// PORT if that can be seen.
[[nodiscard]] UniqueFd listen_at(const addrinfo& place, int64_t port, std::string& error);

// Returns an internet address in digits, without scope, and an IPv4 address within IPv6 as itself;
// empty: another family. PORT may be null.
[[nodiscard]] std::string address_text(const sockaddr& address, int64_t* port = nullptr);

// Returns a socket's local address as address_text(); empty also for any address.
[[nodiscard]] std::string local_address(int socket, int64_t* port = nullptr);

}  // namespace dslaunch::launch
