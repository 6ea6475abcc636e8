// A transport for many hosts: it connects to a few of them, and relays there
// (launch/transport/tree/relay.cpp) connect to the rest, each in the same way. It behaves as any
// transport: neither the supervisor nor an agent knows of the tree. One thread, as every transport.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/machine/launcher_lease.h"
#include "launch/process/timing.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The division of a job's hosts among relays: pure numbers, so that the same tree comes out
// everywhere. Each relay divides its hosts by the same rule.
struct HostRange {
    size_t first = 0;
    size_t hosts_count = 0;

    bool operator==(const HostRange&) const = default;
};

// Returns the levels of connections to the last of HOSTS_COUNT hosts when nobody opens more than
// FANOUT: 1 when all are reached directly. REQUIRES: fanout >= 2.
[[nodiscard]] size_t tree_depth(size_t hosts_count, size_t fanout);

// Returns the hosts to connect to: consecutive ranges that hold each of HOSTS_COUNT hosts once. The
// first host of a range with several starts agents on the others. Returns at most FANOUT ranges,
// and only as many as keep the tree as flat as FANOUT can make it, so that every level has about
// the same work; their sizes differ by at most one. REQUIRES: fanout >= 2.
[[nodiscard]] std::vector<HostRange> split_tree(size_t hosts_count, size_t fanout);

struct TreeOptions {
    TransportKind transport = TransportKind::kSsh;  // kind of the base transport, for the relays
    std::string ssh_config_path;                    // see JobSpec
    size_t fanout = 0;                              // at least 2
    // A relay that has not greeted by then keeps only its own host; the next host of its subtree
    // becomes the relay of the rest.
    std::chrono::milliseconds greeting_max{4'000};
    std::chrono::milliseconds silence_max = kRelaySilenceMax;
    // True at the launcher: it tries a host itself that a relay does not reach, to find out what is
    // wrong.
    bool tries_itself = false;
    std::string tried_from;  // a relay's own name: connection errors say who met them
    // The clock for these limits. It must outlive the transport; null: the system's.
    const Clock* clock = nullptr;
};

// Makes a tree over BASE, which is not started and has add() and hold().  A relay that cannot be
// reached hides no other host: the next of its subtree takes its place, and after two such relays
// the rest is reached without one. A relay that ends while it serves takes its subtree along: each
// host of it ends with the relay named, its own host first. So does a relay that says nothing for
// silence_max.
[[nodiscard]] std::unique_ptr<Transport> make_tree_transport(std::unique_ptr<Transport> base,
                                                             const TreeOptions& options);

// Returns the transport of a job or command on SPEC.nodes: a tree if they are more than SPEC.fanout
// and the way allows one. Lets this process open as many descriptors as it needs. Throws
// Error{kSetup} when even its hard limit is too low.
[[nodiscard]] std::unique_ptr<Transport> make_job_transport(const JobSpec& spec);

// Runs a relay: frames in on IN_FD, frames out on OUT_FD, both pipes or sockets. Returns the
// process's exit code when IN_FD is closed, or when nothing comes and LEASE is over. Every agent of
// the relay then sees its own stdin close, and ends. At most kRelayWindowBytes of each agent wait
// here to be sent on. Throws Error when it cannot do its work.
[[nodiscard]] int run_relay(int in_fd, int out_fd, LauncherLease lease);

}  // namespace dslaunch::launch
