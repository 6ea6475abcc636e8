// The network interfaces of this machine and their addresses. No threads.
#pragma once

#include <string>
#include <vector>

#include "launch/network/network_messages.h"

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

// The local address of a socket in digits, without scope; empty: none. PORT may be null.
[[nodiscard]] std::string local_address(int socket, int64_t* port = nullptr);

}  // namespace dslaunch::launch
