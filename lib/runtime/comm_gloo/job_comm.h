// Everything that one dsworker communicates through, opened from its environment: arena, host
// group, and where there are several hosts the rendezvous and this bridge's link; the same again
// for groups of ranks, those of a stage or of a tensor group, and the links between stages. Where
// it stands: worker environment, arena layout -> job comm -> executor. Threads: opened by one.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/host_link.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/group_place.h"
#include "runtime/comm/ranks/pipeline_place.h"
#include "runtime/comm_gloo/rendezvous.h"

namespace dslaunch::runtime {

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
[[nodiscard]] JobComm open_job_comm(const launch::WorkerEnvironment& environment,
                                    ArenaLayout layout, Duration time_limit);

// A group of the job's ranks; the same of all its members.
struct GroupCommParts {
    GroupPlace place;
    std::string_view name;  // "stage": of what is divided in such groups
    ArenaLayout layout;     // for place.topology's local ranks
    Duration time_limit{};
};

// By all ranks of the job, each in a group of this name. Those of a group on one host share memory
// that the first of them makes and the others open by way of /proc. ALL: of all ranks; it must
// outlive the group's. Throws Error{kSetup} where that is not allowed, and what open_job_comm
// throws.
[[nodiscard]] JobComm open_group_comm(const launch::WorkerEnvironment& environment, JobComm& all,
                                      GroupCommParts parts);

// The links between the stages of a pipeline; the comm of all ranks must outlive them.
struct StageLinks {
    std::unique_ptr<Rendezvous> rendezvous;  // of the far one, where ALL has none
    std::unique_ptr<HostLink> near;          // to the stages whose rank is on this host
    std::unique_ptr<Link> far;               // to the others; null where there are none
    std::vector<Link*> links;                // by stage, either of these
};

// By all ranks of the job. MESSAGES: of HostLink::add_slice in the arena of all ranks.
[[nodiscard]] StageLinks open_stage_links(const launch::WorkerEnvironment& environment,
                                          JobComm& all, const PipelinePlace& place,
                                          SliceId messages, Duration time_limit);

}  // namespace dslaunch::runtime
