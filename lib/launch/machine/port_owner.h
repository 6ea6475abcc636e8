// The process that holds a TCP port of this machine, for the message when the ranks cannot meet
// there. Reads /proc; no threads.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace dslaunch::launch {

// "process 4711 (python3 -m http.server 29500)" for a process that listens on PORT in this network
// namespace; "a process of user alice" when it is another user's, whose number only root sees;
// empty when there is none. Safe to print.
[[nodiscard]] std::string describe_port_owner(int port);

// The numbers of the users who listen on PORT in this network namespace. One read of /proc/net.
[[nodiscard]] std::set<int64_t> port_users(int port);

}  // namespace dslaunch::launch
