#include "runtime/comm_gloo/stage_links.h"

#include <fmt/core.h>

#include <algorithm>

namespace dslaunch::runtime {

namespace {

// Returns one number for each stage: the local rank of the stage's rank in this pipeline, or -1 if
// that rank is on another host.
std::vector<int> local_ranks_of(const PipelinePlace& place, const Topology& world) {
    std::vector<int> local_ranks;
    for (const int rank : place.pipeline) {
        const int local = rank - world.first_rank(world.node_rank);
        const bool here = local >= 0 && local < world.local_world_size();
        local_ranks.push_back(here ? local : -1);
    }
    return local_ranks;
}

}  // namespace

StageLinks open_stage_links(const launch::WorkerEnvironment& environment, JobComm& all,
                            const PipelinePlace& place, SliceId messages, Duration time_limit) {
    const Topology& world = all.collectives->topology();
    const std::vector<int> local_ranks = local_ranks_of(place, world);
    StageLinks links;
    if (std::ranges::count(local_ranks, -1) > 0) {
        Rendezvous* rendezvous = all.rendezvous.get();
        if (rendezvous == nullptr) {
            links.rendezvous = std::make_unique<Rendezvous>(environment, time_limit);
            rendezvous = links.rendezvous.get();
        }
        links.far = rendezvous->open_link(
            {fmt::format("pipeline/{}", place.pipeline.front()), place.stage, place.stages});
        links.far->set_hosts(hosts_of(world, place.pipeline));
    }
    links.near = make_host_link(*all.arena, messages, *all.group,
                                HostLinkPlace{place.stage, local_ranks}, time_limit);
    for (const int local_rank : local_ranks)
        links.links.push_back(local_rank < 0 ? links.far.get() : links.near.get());
    return links;
}

}  // namespace dslaunch::runtime
