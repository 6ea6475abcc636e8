// A transport for many hosts: it connects to a few of them, and the relays on these hosts
// (launch/transport/tree/relay.cpp) connect to the rest in the same way. It behaves like any other
// transport: neither the supervisor nor an agent is aware of the tree. One thread, as for every
// transport.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/process/timing.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// A range of a job's hosts that is reached through its first host. The ranges are computed from
// numbers only, so that the same tree results everywhere. Each relay divides its hosts by the same
// rule.
struct HostRange {
    size_t first = 0;
    size_t hosts_count = 0;

    bool operator==(const HostRange&) const = default;
};

// Returns the number of connection levels from the launcher to the last of HOSTS_COUNT hosts if no
// process opens more than FANOUT connections; 1 if all hosts are reached directly. REQUIRES: fanout
// >= 2.
[[nodiscard]] size_t tree_depth(size_t hosts_count, size_t fanout);

// Returns the hosts to connect to, as consecutive ranges that together contain each of HOSTS_COUNT
// hosts once. If a range has several hosts, its first host starts agents on the others. There are
// at most FANOUT ranges. If the tree has several levels (tree_depth), there are only as many ranges
// as this depth needs, so that every level has about the same work. The sizes of the ranges differ
// by at most one. REQUIRES: fanout >= 2.
[[nodiscard]] std::vector<HostRange> split_tree(size_t hosts_count, size_t fanout);

// The settings of a tree; relays get the same settings.
struct TreeOptions {
    TransportKind transport = TransportKind::kSsh;  // kind of the base transport, for the relays
    std::string ssh_config_path;                    // see JobSpec
    size_t fanout = 0;                              // at least 2
    // A relay that has not sent its greeting within this time keeps only its own host; the next
    // host of its subtree becomes the relay for the rest.
    std::chrono::milliseconds greeting_max{4'000};
    std::chrono::milliseconds silence_max = kRelaySilenceMax;
    // True in the launcher: if a relay does not reach a host, the launcher tries to reach it
    // itself, to find out what is wrong.
    bool tries_itself = false;
    std::string tried_from;  // a relay's own name, for connection errors
    // The clock for these limits. It must outlive the transport; null means the system's clock.
    const Clock* clock = nullptr;
};

// Makes a tree over BASE, which must not be started yet and must implement add() and hold(). If
// a relay cannot be reached, the next host of its subtree becomes the relay. After two such
// failures, the remaining hosts of the subtree are reached directly. If a relay ends while it
// serves, or sends nothing for silence_max, its whole subtree is lost: each of its hosts ends with
// an error that names the relay. The relay's own host ends first.
[[nodiscard]] std::unique_ptr<Transport> make_tree_transport(std::unique_ptr<Transport> base,
                                                             const TreeOptions& options);

// Returns the transport for a job or command on SPEC.nodes: a tree if there are more than
// SPEC.fanout nodes and the kind of transport allows a tree. Lets this process open as many
// descriptors as it needs. Throws Error{kSetup} if even its hard limit is too low.
[[nodiscard]] std::unique_ptr<Transport> make_job_transport(const JobSpec& spec);

}  // namespace dslaunch::launch
