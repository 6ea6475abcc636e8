#include "runtime/comm_gloo/job_comm.h"

#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "launch/machine_name.h"

namespace dslaunch {

namespace {

std::unique_ptr<Arena> open_arena(const WorkerEnvironment& environment, ArenaLayout layout,
                                  Duration time_limit) {
    if (environment.arena_fd < 0 && environment.local_world_size > 1)
        fail(ExitCode::kSetup,
             "DSL_ARENA_FD is not set, but {} workers of this node share an arena: start dsworker "
             "by dslaunch",
             environment.local_world_size);
    if (environment.arena_fd < 0)
        return std::make_unique<Arena>(Arena::anonymous(std::move(layout)));
    return std::make_unique<Arena>(Arena::from_descriptor(
        std::move(layout), {environment.arena_fd, environment.local_rank, time_limit}));
}

}  // namespace

JobComm open_job_comm(const WorkerEnvironment& environment, ArenaLayout layout,
                      Duration time_limit) {
    const Topology topology = Topology::of_rank(environment.node_sizes, environment.rank);
    DSL_CHECK(layout.local_world_size() == topology.local_world_size(),
              "a layout for {} local ranks where there are {}", layout.local_world_size(),
              topology.local_world_size());
    JobComm comm;
    comm.arena = open_arena(environment, std::move(layout), time_limit);
    comm.arena->populate(topology.local_rank);
    comm.group = std::make_unique<HostGroup>(
        *comm.arena, HostGroupOptions{.local_rank = topology.local_rank,
                                      .first_rank = topology.first_rank(topology.node_rank),
                                      .host = machine_name(),
                                      .time_limit = time_limit});
    std::unique_ptr<Link> link;
    if (topology.is_bridge()) {
        comm.rendezvous = std::make_unique<Rendezvous>(
            topology, RendezvousOptions{.master_address = environment.master_address,
                                        .master_port = environment.master_port,
                                        .listening_fd = environment.rendezvous_fd,
                                        .time_limit = time_limit});
        link = comm.rendezvous->open_link();
    }
    comm.collectives = make_collectives({.topology = topology,
                                         .arena = comm.arena.get(),
                                         .group = comm.group.get(),
                                         .link = std::move(link)});
    return comm;
}

}  // namespace dslaunch
