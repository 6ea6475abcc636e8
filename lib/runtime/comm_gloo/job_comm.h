// Everything that one dsworker communicates through, opened from its environment: arena, host
// group, and where there are several hosts the rendezvous and this bridge's link; in a pipeline the
// same again for the ranks of a stage, and the links to the other stages. Where it stands: worker
// environment, arena layout -> job comm -> executor. Threads: opened by one.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "launch/worker_environment.h"
#include "runtime/comm/arena.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host_group.h"
#include "runtime/comm/host_link.h"
#include "runtime/comm/link.h"
#include "runtime/comm/pipeline_place.h"
#include "runtime/comm_gloo/rendezvous.h"

namespace dslaunch {

// Members end in reverse order: collectives first, the arena last.
struct JobComm {
    std::unique_ptr<Arena> arena;
    std::unique_ptr<HostGroup> group;
    std::unique_ptr<Rendezvous> rendezvous;  // bridges, and who has links of a pipeline
    std::unique_ptr<Collectives> collectives;
};

// Waits for all ranks of the host and, as a bridge, for the same bridge of the others. Takes over
// the descriptors of ENVIRONMENT. A rank alone on its host needs no arena_fd. Throws what Arena,
// HostGroup and Rendezvous throw. REQUIRES: layout is made for environment.local_world_size ranks.
[[nodiscard]] JobComm open_job_comm(const WorkerEnvironment& environment, ArenaLayout layout,
                                    Duration time_limit);

// Beside the comm of all ranks, which must outlive it.
struct PipelineComm {
    JobComm stage;                   // of the ranks of this one's stage
    std::unique_ptr<HostLink> near;  // to the stages whose rank is on this host
    std::unique_ptr<Link> far;       // to the others; null where there are none
    std::vector<Link*> links;        // by stage, either of these
};

struct PipelineCommParts {
    PipelinePlace place;
    SliceId messages;    // of HostLink::add_slice in the arena of all ranks
    ArenaLayout layout;  // of the stage's arena, for place.of_stage's local ranks
    Duration time_limit{};
};

// By all ranks of the job. The ranks of a stage on one host share memory that the first of them
// makes and the others open by way of /proc. Throws Error{kSetup} where that is not allowed, and
// what open_job_comm throws.
[[nodiscard]] PipelineComm open_pipeline_comm(const WorkerEnvironment& environment, JobComm& all,
                                              PipelineCommParts parts);

}  // namespace dslaunch
