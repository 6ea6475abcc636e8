// Chooses the network on which the ranks of a job meet: the hosts' interfaces -> what to try ->
// what was reached -> one address of node 0 and one interface of every host. Pure; no threads. The
// agents' half, which listens and connects, is launch/network/network_probe.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/text/message.h"

namespace dslaunch::launch {

using dslaunch::decode;
using dslaunch::encode;

// One address of one interface of a host.
struct InterfaceAddress {
    std::string interface;    // "eth0"
    std::string address;      // digits
    int64_t speed_mbit = -1;  // -1: the kernel does not say
    bool up = false;
    bool loopback = false;
    bool for_guests = false;  // a bridge or tunnel that containers or virtual machines bring along

    bool operator==(const InterfaceAddress&) const = default;
};

// Frame kListen: asks an agent to wait for the other hosts at these addresses.
struct ListenRequest {
    static constexpr const char* kWhat = "a request to listen";
    std::vector<std::string> addresses;  // or one name, which the host looks up
    int64_t port = 0;                    // 0: a free one for each
    int64_t node = 0;                    // node number that this host answers with
    std::string key;                     // a question that does not begin with it gets no answer
};

struct ListenReply {
    static constexpr const char* kWhat = "an answer about listening";
    struct Place {
        std::string address;    // address in the request
        std::string numeric;    // bound address in digits
        std::string interface;  // interface with that address; empty: none
        int64_t port = 0;
        std::string error;  // reason why nothing listens there; empty: none
    };
    std::vector<Place> places;
    int64_t clock_ns = 0;  // clock of this host, since 1970
};

// The most targets at once: an agent has descriptors for so many, whatever its limit.
inline constexpr size_t kProbeTargetsMax = 512;

// Frame kProbe: asks an agent to connect to these places of other hosts, at most kProbeTargetsMax.
struct ProbeRequest {
    static constexpr const char* kWhat = "a request to probe";
    struct Target {
        int64_t node = 0;
        std::string address;  // in digits
        int64_t port = 0;
    };
    std::vector<Target> targets;
    int64_t time_max_ms = 0;  // for all of them together
    std::string key;
};

struct ProbeReply {
    static constexpr const char* kWhat = "an answer about probes";
    struct Result {
        int64_t node = 0;
        std::string address;      // address in the request
        std::string own_address;  // own address on the way there; empty: no way
        std::string interface;    // interface with own_address
        std::string error;        // empty: the right host answered
    };
    std::vector<Result> results;  // in the order of the targets
};

// Frame kChooseNetwork: the socket at ADDRESS (as in ListenRequest) is the rendezvous, and the
// others are closed. Empty: all are closed.
struct ChooseRequest {
    static constexpr const char* kWhat = "the choice of a network";
    std::string address;
};

// The most hosts that must all reach each other. Of more hosts, each must reach node 0 and the next
// host in the ring, and be reached by node 0 and the one before.
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

// Returns each host's addresses that others may reach, the best first: the one where ssh arrived,
// those not for guests, IPv4, the fastest link, by name. Leaves out addresses that are down,
// loopback or link-local, and one that two machines have, as docker0's: it leads to oneself.
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
    // When nothing was found: a line for each way that failed, equal causes joined, at most
    // kFailureLinesMax.
    std::vector<std::string> failures;
};
inline constexpr size_t kFailureLinesMax = 24;

// Returns node 0's first candidate that every host reaches, from addresses that all the required
// hosts reach. An untried address counts as not reached.
[[nodiscard]] NetworkChoice choose_network(
    const std::vector<NetworkHost>& hosts,
    const std::vector<std::vector<NetworkCandidate>>& candidates,
    const std::vector<NetworkProbeResult>& results);

}  // namespace dslaunch::launch
