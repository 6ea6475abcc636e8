// The facts that an agent tells about its machine, and the socket where the ranks of a job meet.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// Version, host name, cores, GPUs, kernel, the address at which sshd was reached. No hash.
[[nodiscard]] AgentHello look_at_node();

struct Rendezvous {
    UniqueFd socket;  // listening, close-on-exec
    PrepareReply where;
};

// Binds and listens. Throws Error{kSetup} naming address and port when that does not work.
[[nodiscard]] Rendezvous open_rendezvous(const PrepareRequest& request,
                                         const std::string& arrival_address);

}  // namespace dslaunch::launch
