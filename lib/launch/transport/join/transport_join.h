// Agents that call back: the launcher listens, and each agent that connects and proves that it
// holds the token becomes one host of the job. From then on its connection carries the agent
// protocol as a pipe would. Agents come by themselves (a pod, another terminal) or are started by
// one program (agent_starter.h). One thread; only wait() blocks.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "launch/transport/join/agent_starter.h"
#include "launch/transport/join/join_endpoint.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// Connections that have not yet proven themselves: a newer one takes the oldest one's place, none
// lasts longer than the time, and none is read further than a handshake is long.
inline constexpr size_t kUnprovenConnectionsMax = 128;

struct JoinSettings {
    // The endpoint to listen at. Nothing given: a Unix socket in a private folder, without token; a
    // host without port: a free port.
    JoinEndpoint endpoint;
    std::string token;  // not empty over TCP
    // The time from start() until a host that has not joined is given up.
    std::chrono::milliseconds join_max{30'000};
    std::unique_ptr<AgentStarter> starter;       // null: every agent comes by itself
    bool announce = false;                       // a log line for each agent that joins
    std::chrono::milliseconds proof_max{5'000};  // limit for a connection to identify itself
    // The clock by which these limits are kept. It must outlive the transport; null: the system's.
    const Clock* clock = nullptr;
};

// The settings for agents that STARTER starts and that call back over TCP, to the address that
// faces SPEC's hosts.
[[nodiscard]] JoinSettings called_back(const JobSpec& spec, std::unique_ptr<AgentStarter> starter);

// Over TCP, strangers, garbage and wrong tokens cost their own connection and nothing else. An
// agent that names a host which has joined, or none where all have come, is refused with the
// reason. Once every host has joined or ended nobody can connect any more. A host that is missing
// when the starter ended, or after join_max, ends with the starter's last words or with who came
// instead. start() throws Error{kSetup} when it cannot listen.
[[nodiscard]] std::unique_ptr<Transport> make_join_transport(JoinSettings settings);

}  // namespace dslaunch::launch
