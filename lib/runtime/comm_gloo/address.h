// The addresses by which other hosts reach this machine. No LibTorch.
#pragma once

#include <string>

namespace dslaunch::runtime {

// Returns the address to which a socket is bound, as digits, or nothing if it is bound to all
// addresses or is no internet socket.
[[nodiscard]] std::string bound_address(int fd);

// Returns the address from which this machine reaches HOST, as digits. Nothing is sent. Throws
// Error{kHosts} naming it if it does not resolve or no route leads there.
[[nodiscard]] std::string address_that_reaches(const std::string& host);

[[nodiscard]] bool is_loopback(const std::string& address);

}  // namespace dslaunch::runtime
