// Everything through which one dsworker communicates, opened from its environment: arena, host
// group and, with several hosts, the rendezvous and this bridge's link. Groups of ranks (a stage or
// a tensor group) get the same. Data path: worker environment, arena layout -> job comm ->
// executor. Threads: one opens it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/topology.h"
#include "runtime/comm_gloo/rendezvous.h"

namespace dslaunch::runtime {

// Members are destroyed in reverse order: collectives first, the arena last.
struct JobComm {
    std::unique_ptr<Arena> arena;
    std::unique_ptr<HostGroup> group;
    std::unique_ptr<Rendezvous> rendezvous;  // on bridges, and on ranks with links of a pipeline
    std::unique_ptr<Collectives> collectives;
};

// Opens the comm of all ranks. Waits for all ranks of the host; a bridge also waits for the bridge
// with the same index on every other host. Takes ownership of the file descriptors in ENVIRONMENT.
// A rank that is alone on its host needs no arena_fd. STREAMS are passed to Rendezvous. Throws the
// errors of Arena, HostGroup and Rendezvous. REQUIRES: LAYOUT was made for
// environment.local_world_size ranks.
[[nodiscard]] JobComm open_job_comm(const launch::WorkerEnvironment& environment,
                                    ArenaLayout layout, Duration time_limit, int streams = 1);

// The description of a group of the job's ranks, with the same values on all its members.
struct GroupCommParts {
    GroupPlace place;
    std::string_view name;  // kind of the groups, such as "stage"
    ArenaLayout layout;     // for place.topology's local ranks
    Duration time_limit{};
};

// Opens the comm of this rank's group. All ranks of the job call it: each passes its own group, and
// all pass the same name. The ranks of a group on one host share memory that the first of them
// makes and the others open through /proc. ALL is the comm of all ranks and must outlive the
// returned comm. Throws Error{kSetup} if the memory may not be opened through /proc, and the errors
// of open_job_comm.
[[nodiscard]] JobComm open_group_comm(const launch::WorkerEnvironment& environment, JobComm& all,
                                      GroupCommParts parts);

// Returns the host of each of RANKS, as a node rank in WORLD.
[[nodiscard]] std::vector<int> hosts_of(const Topology& world, const std::vector<int>& ranks);

}  // namespace dslaunch::runtime
