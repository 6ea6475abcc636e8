// The addresses by which other hosts reach this machine. No LibTorch.
#pragma once

#include <string>

namespace dslaunch::runtime {

// Returns the address to which socket FD is bound, in numeric form. Returns an empty text if the
// socket is bound to all addresses or is not an internet socket.
[[nodiscard]] std::string bound_address(int fd);

// Returns the address from which this machine reaches HOST, in numeric form. Sends nothing. Throws
// Error{kHosts}, naming HOST, if it cannot be resolved or there is no route to it.
[[nodiscard]] std::string address_that_reaches(const std::string& host);

// Returns true if ADDRESS, in numeric form, belongs to this machine's loopback network.
[[nodiscard]] bool is_loopback(const std::string& address);

}  // namespace dslaunch::runtime
