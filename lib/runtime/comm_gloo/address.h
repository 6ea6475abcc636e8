// Which address of this machine others reach it by. No LibTorch.
#pragma once

#include <string>

namespace dslaunch::runtime {

// The address to which a socket is bound, as digits; empty when it is bound to all, or is no
// internet socket.
[[nodiscard]] std::string bound_address(int fd);

// The address from which this machine reaches HOST (nothing is sent), as digits.
// Throws Error{kHosts} naming it when it does not resolve or no route leads there.
[[nodiscard]] std::string address_that_reaches(const std::string& host);

[[nodiscard]] bool is_loopback(const std::string& address);

}  // namespace dslaunch::runtime
