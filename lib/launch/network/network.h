// The network on which the ranks of a job meet is chosen here: what the hosts tell of their
// interfaces -> what to try -> what was reached -> one address of node 0 and one interface of every
// host. Pure; no threads. The agents' half, which listens and connects, is
// launch/network/network_probe.h.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/network/network_messages.h"

namespace dslaunch::launch {

// Up to this many hosts every host must reach every other; beyond, each must reach node 0 and the
// next host in the ring, and be reached by node 0 and the one before.
inline constexpr size_t kAllPairsHostsMax = 16;

struct NetworkHost {
    std::string name;
    std::string machine;          // equal for two names of one machine; empty: not known
    std::string arrival_address;  // address at which sshd was reached; empty: not known
    std::vector<InterfaceAddress> addresses;
};

struct NetworkCandidate {
    std::string interface;
    std::string address;
    std::string reason;  // why it stands where it stands, in words
};

// The addresses of each host that others may reach, the best first: the one where ssh arrived,
// those that are not for guests, IPv4, the fastest link, by name. Left out: what is down, loopback
// and link-local, and an address that two machines have, as docker0's: it leads to oneself.
[[nodiscard]] std::vector<std::vector<NetworkCandidate>> plan_candidates(
    const std::vector<NetworkHost>& hosts);

// Host FROM tries ADDRESS of host TO.
struct NetworkProbePlan {
    size_t from = 0;
    size_t to = 0;
    std::string address;
};

enum class ProbeScope { kLikely, kEverything };  // the best address of each host; all of them
[[nodiscard]] std::vector<NetworkProbePlan> plan_probes(
    const std::vector<std::vector<NetworkCandidate>>& candidates, ProbeScope scope);

struct NetworkProbeResult {
    size_t from = 0;
    size_t to = 0;
    std::string address;
    std::string own_address;
    std::string interface;
    std::string error;  // empty: reached
};

struct NetworkChoice {
    bool found = false;
    NetworkCandidate meeting;             // address of node 0
    std::vector<std::string> interfaces;  // by host, its interface on that network
    // When nothing was found: a line for each way that failed, the same causes joined, at most
    // kFailureLinesMax.
    std::vector<std::string> failures;
};
inline constexpr size_t kFailureLinesMax = 24;

// The first candidate of node 0 that every host reaches, from addresses that are reached by all
// that must. What was not tried counts as not reached.
[[nodiscard]] NetworkChoice choose_network(
    const std::vector<NetworkHost>& hosts,
    const std::vector<std::vector<NetworkCandidate>>& candidates,
    const std::vector<NetworkProbeResult>& results);

}  // namespace dslaunch::launch
