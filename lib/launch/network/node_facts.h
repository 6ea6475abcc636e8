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

// The number of processes that the kernel's out-of-memory killer has ended, on this machine and in
// our control group; -1 where it does not say.
struct OomCount {
    int64_t machine = -1;
    int64_t group = -1;
};
// ROOT: "" for this machine, else the folder of a test that holds proc/ and sys/.
[[nodiscard]] OomCount count_oom_kills(const std::string& root = "");
// The kills that were added between the two, in words; empty when there is none.
[[nodiscard]] std::string describe_oom(const OomCount& before, const OomCount& now);

}  // namespace dslaunch::launch
