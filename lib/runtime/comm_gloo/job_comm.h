// Everything that one dsworker communicates through, opened from its environment: arena, host
// group, and where there are several hosts the rendezvous and this bridge's link. Where it stands:
// worker environment, arena layout -> job comm -> executor. Threads: opened by one.
#pragma once

#include <memory>

#include "base/clock.h"
#include "launch/worker_environment.h"
#include "runtime/comm/arena.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host_group.h"
#include "runtime/comm_gloo/rendezvous.h"

namespace dslaunch {

// Members end in reverse order: collectives first, the arena last.
struct JobComm {
    std::unique_ptr<Arena> arena;
    std::unique_ptr<HostGroup> group;
    std::unique_ptr<Rendezvous> rendezvous;  // bridges only
    std::unique_ptr<Collectives> collectives;
};

// Waits for all ranks of the host and, as a bridge, for the same bridge of the others. Takes over
// the descriptors of ENVIRONMENT. A rank alone on its host needs no arena_fd. Throws what Arena,
// HostGroup and Rendezvous throw. REQUIRES: layout is made for environment.local_world_size ranks.
[[nodiscard]] JobComm open_job_comm(const WorkerEnvironment& environment, ArenaLayout layout,
                                    Duration time_limit);

}  // namespace dslaunch
