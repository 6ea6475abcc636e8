// The agent's way to a launcher that waits for it: connects, proves that it holds the token, and
// leaves a socket and a channel on which the agent protocol follows. Blocks; before any thread.
#pragma once

#include <chrono>
#include <string>

#include "base/fd.h"
#include "launch/transport/join/join_endpoint.h"
#include "launch/transport/join/join_handshake.h"

namespace dslaunch::launch {

struct JoinRequest {
    JoinEndpoint endpoint;
    std::string token;  // empty only over a Unix socket
    JoinIdentity identity;
    bool removes_socket = false;  // a Unix socket that nobody else is to use: gone when joined
    // A launcher that does not listen yet, or something else in its place, is tried again, 50 ms to
    // 2 s apart, for so long.
    std::chrono::milliseconds connect_max{300'000};
};

struct JoinedLauncher {
    UniqueFd socket;              // blocking, close-on-exec
    JoinChannel channel;          // for all that passes it from here on
    std::string arrival_address;  // address of this end; empty over a Unix socket
};

// Throws Error{kHosts}: within the time nobody listens who holds the token, or the launcher that
// does refuses (its reason); Error{kUsage}: a Unix socket that belongs to somebody else or that
// others may use.
[[nodiscard]] JoinedLauncher join_launcher(const JoinRequest& request);

}  // namespace dslaunch::launch
