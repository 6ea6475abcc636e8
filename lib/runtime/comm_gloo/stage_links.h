// The links between the stages of a pipeline: through memory to stages on the same host, over the
// network to the others. Data path: worker environment, job comm -> links -> executor. Threads: one
// opens them.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm/host_link.h"
#include "runtime/comm/link.h"
#include "runtime/comm/ranks/topology.h"
#include "runtime/comm_gloo/job_comm.h"
#include "runtime/comm_gloo/rendezvous.h"

namespace dslaunch::runtime {

// The links between the stages of a pipeline. The comm of all ranks must outlive them.
struct StageLinks {
    std::unique_ptr<Rendezvous> rendezvous;  // for the far link, if ALL has none
    std::unique_ptr<Link> near;              // link to the stages whose rank is on this host
    std::unique_ptr<Link> far;               // link to the other stages; null if there are none
    std::vector<Link*> links;                // one per stage, either of the two
};

// Opens the links. All ranks of the job call it. MESSAGES is the slice from add_host_link, in the
// arena of all ranks.
[[nodiscard]] StageLinks open_stage_links(const launch::WorkerEnvironment& environment,
                                          JobComm& all, const PipelinePlace& place,
                                          SliceId messages, Duration time_limit);

}  // namespace dslaunch::runtime
