// Chooses the network on which the ranks of a job meet. Data path: the hosts' interfaces -> the
// connections to try -> their results -> one address of node 0 and one interface of every host.
// Pure; no threads. The agents' half, which listens and connects, is in
// launch/network/network_probe.h.
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
    int64_t speed_mbit = -1;  // -1: not reported by the kernel
    bool up = false;
    bool loopback = false;
    bool for_guests = false;  // true for a bridge or tunnel of containers or virtual machines

    bool operator==(const InterfaceAddress&) const = default;
};

// Frame kListen: asks an agent to listen for the other hosts at these addresses.
struct ListenRequest {
    static constexpr const char* kWhat = "a request to listen";
    std::vector<std::string> addresses;  // addresses, or one name that the host looks up
    int64_t port = 0;                    // 0: a free port for each
    int64_t node = 0;                    // node number of the listening host, which its answers
                                         // contain
    std::string key;                     // a question that does not begin with this key gets no
                                         // answer
};

// Frame kListening: the answer to a ListenRequest.
struct ListenReply {
    static constexpr const char* kWhat = "an answer about listening";
    // The result for one address of the request.
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

// The largest number of addresses that an agent tries at once. It always has enough descriptors for
// them, even if its limit of open files is low.
inline constexpr size_t kProbeTargetsMax = 512;

// Frame kProbe: asks an agent to connect to these places of other hosts, at most kProbeTargetsMax.
struct ProbeRequest {
    static constexpr const char* kWhat = "a request to probe";
    // The place where another host listens.
    struct Target {
        int64_t node = 0;
        std::string address;  // in digits
        int64_t port = 0;
    };
    std::vector<Target> targets;
    int64_t time_max_ms = 0;  // for all targets together
    std::string key;
};

// Frame kProbed: the answer to a ProbeRequest.
struct ProbeReply {
    static constexpr const char* kWhat = "an answer about probes";
    // The result for one target.
    struct Result {
        int64_t node = 0;
        std::string address;      // address in the request
        std::string own_address;  // own address of the connection; empty: none
        std::string interface;    // interface with own_address
        std::string error;        // empty: the right host answered
    };
    std::vector<Result> results;  // in the order of the targets
};

// Frame kChooseNetwork: the socket at ADDRESS (as in ListenRequest) becomes the rendezvous, and the
// other sockets are closed. If ADDRESS is empty, all sockets are closed.
struct ChooseRequest {
    static constexpr const char* kWhat = "the choice of a network";
    std::string address;
};

// In a job with at most this many hosts, every host must reach every other host. With more hosts,
// each host must reach node 0 and the next host in the ring, and must be reached from node 0 and
// the previous host.
inline constexpr size_t kAllPairsHostsMax = 16;

// The facts about one host from which its network is chosen.
struct NetworkHost {
    std::string name;
    std::string machine;          // equal for two names of one machine; empty: not known
    std::string arrival_address;  // address at which sshd was reached; empty: not known
    std::vector<InterfaceAddress> addresses;
};

// An address at which the other hosts may reach a host.
struct NetworkCandidate {
    std::string interface;
    std::string address;
    std::string reason;  // why it has this place in the order, in words
};

// Returns, for each host, the addresses at which other hosts may reach it, the best first. The
// criteria are, in this order: ssh arrived there; the interface is not for guests (containers,
// virtual machines); IPv4; a faster link; the name. Leaves out addresses that are down, loopback or
// link-local, and addresses that two machines have, such as docker0's: each machine would reach
// itself.
[[nodiscard]] std::vector<std::vector<NetworkCandidate>> plan_candidates(
    const std::vector<NetworkHost>& hosts);

// A connection to try, from host FROM to ADDRESS of host TO.
struct NetworkProbePlan {
    size_t from = 0;
    size_t to = 0;
    std::string address;
};

enum class ProbeScope { kLikely, kEverything };  // the best address of each host; all addresses
// Returns the connections to try so that choose_network() can decide.
[[nodiscard]] std::vector<NetworkProbePlan> plan_probes(
    const std::vector<std::vector<NetworkCandidate>>& candidates, ProbeScope scope);

// The result of one NetworkProbePlan.
struct NetworkProbeResult {
    size_t from = 0;
    size_t to = 0;
    std::string address;
    std::string own_address;
    std::string interface;
    std::string error;  // empty: reached
};

// The network of a job, or the reasons why there is none.
struct NetworkChoice {
    bool found = false;
    NetworkCandidate meeting;             // address of node 0
    std::vector<std::string> interfaces;  // each host's interface on that network
    // If nothing was found: one line for each connection that failed, with equal causes joined; at
    // most kFailureLinesMax lines.
    std::vector<std::string> failures;
};
inline constexpr size_t kFailureLinesMax = 24;

// Returns the first of node 0's candidates that every host reaches. Also chooses, for each other
// host, the address from which it reaches node 0. Some hosts must also reach each other
// (kAllPairsHostsMax); they must do so at the chosen addresses. An address that was not tried
// counts as not reached.
[[nodiscard]] NetworkChoice choose_network(
    const std::vector<NetworkHost>& hosts,
    const std::vector<std::vector<NetworkCandidate>>& candidates,
    const std::vector<NetworkProbeResult>& results);

}  // namespace dslaunch::launch
