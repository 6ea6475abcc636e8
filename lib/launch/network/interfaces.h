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

// Returns every IPv4 and IPv6 address in the kernel's order; empty if the kernel reports none.
[[nodiscard]] std::vector<InterfaceAddress> list_interfaces();

// Returns the interface in ADDRESSES that has ADDRESS (digits); empty if there is none.
[[nodiscard]] std::string interface_of(const std::vector<InterfaceAddress>& addresses,
                                       const std::string& address);

// Returns true if Docker, Kubernetes or a virtual machine usually creates an interface of this
// name.
[[nodiscard]] bool is_for_guests(const std::string& interface);

// Returns true if HOST resolves to an address of an interface of this machine. Blocks as DNS does.
[[nodiscard]] bool is_own_address(const std::string& host);

// Returns the socket addresses of HOST, a name or an address, for stream sockets. Returns null,
// with the reason in ERROR (may be null), if there are none. FLAGS: as for getaddrinfo(). Blocks as
// DNS does, unless FLAGS allow digits only.
[[nodiscard]] std::shared_ptr<addrinfo> look_up(const std::string& host, int64_t port,
                                                int flags = 0, std::string* error = nullptr,
                                                int family = AF_UNSPEC);

// Opens a close-on-exec socket that listens at PLACE. If the result is invalid, ERROR gives the
// reason. If another program uses PORT and is visible, ERROR names this program.
[[nodiscard]] UniqueFd listen_at(const addrinfo& place, int64_t port, std::string& error);

// Returns an internet address in digits, without its scope; an IPv4 address mapped into IPv6 is
// written as IPv4. Returns empty for another address family. PORT may be null.
[[nodiscard]] std::string address_text(const sockaddr& address, int64_t* port = nullptr);

// Returns a socket's local address in the form of address_text(). Returns an empty text if the
// socket is bound to the wildcard address.
[[nodiscard]] std::string local_address(int socket, int64_t* port = nullptr);

}  // namespace dslaunch::launch
