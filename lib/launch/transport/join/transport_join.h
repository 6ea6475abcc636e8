// A transport for agents that call back: the launcher listens, and each agent that connects and
// proves that it has the token becomes one host of the job. Its connection then carries the agent
// protocol as a pipe would. Agents are started independently (in a pod, in another terminal) or all
// by one program (starters.cpp). One thread; only wait() blocks.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "launch/plan/job_spec.h"
#include "launch/transport/join/agent_starter.h"
#include "launch/transport/join/join_endpoint.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The largest number of connections that have not yet proven that they have the token. If another
// connection arrives, the oldest one is closed. Every unproven connection has limited time, and the
// launcher reads at most the length of a handshake from it.
inline constexpr size_t kUnprovenConnectionsMax = 128;

// The way in which agents join, and the time that they have for it.
struct JoinSettings {
    // The endpoint to listen at. If it is empty, the launcher listens at a Unix socket in a private
    // folder, without a token. Port 0 stands for a free port.
    JoinEndpoint endpoint;
    std::string token;  // not empty over TCP
    // The time after start() at which a host that has not joined is given up.
    std::chrono::milliseconds join_max{30'000};
    std::unique_ptr<AgentStarter> starter;       // null: every agent comes by itself
    bool announce = false;                       // true: log each agent that joins
    std::chrono::milliseconds proof_max{5'000};  // limit for a connection to identify itself
    // The clock for these limits. It must outlive the transport; null means the system's clock.
    const Clock* clock = nullptr;
};

// Returns the settings for agents that STARTER starts. The agents connect over TCP, to the address
// at which SPEC's hosts can reach this machine.
[[nodiscard]] JoinSettings called_back(const JobSpec& spec, std::unique_ptr<AgentStarter> starter);

// Makes the transport. Over TCP, a connection with a wrong token or other bytes is closed and does
// not affect the job. An agent is refused, with the reason, if its host or every host has already
// joined. Once every host has joined or ended, nobody can connect any more. If a host has
// not joined when the starter ends, or after join_max, the transport gives the host up. The host's
// error then contains the starter's last lines, or a list of the agents that did connect. start()
// throws Error{kSetup} if it cannot listen.
[[nodiscard]] std::unique_ptr<Transport> make_join_transport(JoinSettings settings);

}  // namespace dslaunch::launch
