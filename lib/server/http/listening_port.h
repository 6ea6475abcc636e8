// Opens the port of a server.
#pragma once

#include <string>

#include "base/fd.h"

namespace dslaunch::server {

// A socket that listens, and its port.
struct ListeningPort {
    UniqueFd socket;  // does not block
    int port = 0;
};

// Opens PORT at HOST, a name or an address; PORT 0 means any free port. May resolve the name.
// Throws Error{kSetup} if the port is taken or HOST is not an address of this machine.
[[nodiscard]] ListeningPort listen_on(const std::string& host, int port);

}  // namespace dslaunch::server
