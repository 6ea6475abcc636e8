// A transport for many hosts: it connects to a few of them, and relays there
// (launch/transport/tree/relay.cpp) to the rest, each in the same way. What it is asked and what it
// tells is that of any transport: neither the supervisor nor an agent knows of the tree. One
// thread, as every transport.
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
// wherever it is asked for. Each relay divides what it was given by the same rule.
struct HostRange {
    size_t first = 0;
    size_t hosts_count = 0;

    bool operator==(const HostRange&) const = default;
};

// Levels of connections until the last of HOSTS_COUNT hosts when nobody opens more than FANOUT: 1
// when all are reached directly. REQUIRES: fanout >= 2.
[[nodiscard]] size_t tree_depth(size_t hosts_count, size_t fanout);

// The hosts to be connected to: consecutive ranges that hold each of HOSTS_COUNT hosts once. The
// first host of a range with several starts agents on the others. Not more ranges than FANOUT, and
// only as many as keep the tree as flat as FANOUT can make it, so that every level has about the
// same work; their sizes differ by at most one. REQUIRES: fanout >= 2.
[[nodiscard]] std::vector<HostRange> split_tree(size_t hosts_count, size_t fanout);

struct TreeOptions {
    TransportKind transport = TransportKind::kSsh;  // kind of the base transport, for the relays
    std::string ssh_config_path;                    // see JobSpec
    size_t fanout = 0;                              // at least 2
    // A relay that has not greeted by then keeps its own host alone; the next host of its subtree
    // is relay of the rest.
    std::chrono::milliseconds greeting_max{4'000};
    std::chrono::milliseconds silence_max = kRelaySilenceMax;
    // The launcher has this: where a relay does not reach a host, it tries itself, to tell what is
    // wrong.
    bool tries_itself = false;
    std::string tried_from;  // a relay's own name: connection errors say who met them
    // The clock by which these limits are kept. It must outlive the transport; null: the system's.
    const Clock* clock = nullptr;
};

// BASE: not started, with add() and hold().
//
// A relay that cannot be reached hides no other host: the next of its subtree takes its place, and
// after two such the rest is reached without one. A relay that ends when it serves takes its
// subtree along: each host of it ends with the relay named, its own host first. So does one that
// says nothing for silence_max.
[[nodiscard]] std::unique_ptr<Transport> make_tree_transport(std::unique_ptr<Transport> base,
                                                             const TreeOptions& options);

// The transport of a job or command on SPEC.nodes: a tree where they are more than SPEC.fanout and
// the way allows one. This process may then open as many descriptors as it needs. Throws
// Error{kSetup} when even its hard limit is too low.
[[nodiscard]] std::unique_ptr<Transport> make_job_transport(const JobSpec& spec);

// Frames in on IN_FD, frames out on OUT_FD, both pipes or sockets. Returns the process's exit code
// when IN_FD is closed, or when nothing comes and LEASE is over: every agent behind it sees its own
// stdin close then, and ends what it has. At most kRelayWindowBytes of each agent wait here to be
// sent on. Throws Error when it cannot do what it is told.
[[nodiscard]] int run_relay(int in_fd, int out_fd, LauncherLease lease);

}  // namespace dslaunch::launch
