#include "runtime/comm_gloo/job_comm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
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

std::unique_ptr<Rendezvous> open_rendezvous(const WorkerEnvironment& environment,
                                            Duration time_limit) {
    return std::make_unique<Rendezvous>(
        Topology::of_rank(environment.node_sizes, environment.rank),
        RendezvousOptions{.master_address = environment.master_address,
                          .master_port = environment.master_port,
                          .listening_fd = environment.rendezvous_fd,
                          .time_limit = time_limit});
}

// A number of another process's table of files.
struct SharedFile {
    int process = 0;
    int fd = -1;
};

UniqueFd open_shared(const SharedFile& file) {
    const std::string path = fmt::format("/proc/{}/fd/{}", file.process, file.fd);
    UniqueFd own(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!own.valid())
        fail(ExitCode::kSetup,
             "the memory that the ranks of a pipeline's stage share cannot be opened: {}: {}; they "
             "must run as one user, in one namespace of processes, with /proc mounted",
             path, std::strerror(errno));
    return own;
}

// Memory that the ranks of each stage on this host share, which its first one makes. By all ranks.
UniqueFd share_memory(Collectives& all, const PipelinePlace& place) {
    const Topology& stage = place.of_stage;
    const auto first =
        static_cast<size_t>(place.members[static_cast<size_t>(stage.first_rank(stage.node_rank))]);
    UniqueFd own;
    if (stage.local_rank == 0) {
        own.reset(::memfd_create("dslaunch-stage", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!own.valid())
            fail(ExitCode::kSetup, "no shared memory for a stage of the pipeline: {}",
                 std::strerror(errno));
    }
    const std::vector<std::string> files =
        all.all_gather(fmt::format("{} {}", ::getpid(), own.get()));
    if (stage.local_rank > 0) {
        SharedFile file;
        const std::string& text = files[first];
        const size_t space = text.find(' ');
        file.process = std::stoi(text.substr(0, space));
        file.fd = std::stoi(text.substr(space + 1));
        own = open_shared(file);
    }
    all.barrier();  // until then the first one keeps it open
    return own;
}

// By stage, the local rank of this rank's pipeline in it; -1 on another host.
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

JobComm open_job_comm(const WorkerEnvironment& environment, ArenaLayout layout,
                      Duration time_limit) {
    const Topology topology = Topology::of_rank(environment.node_sizes, environment.rank);
    DSL_CHECK(layout.local_world_size() == topology.local_world_size(),
              "a layout for {} local ranks where there are {}", layout.local_world_size(),
              topology.local_world_size());
    JobComm comm;
    comm.arena = open_arena(environment, std::move(layout), time_limit);
    comm.arena->populate(topology.local_rank);
    comm.group =
        std::make_unique<HostGroup>(*comm.arena, HostGroupOptions{.local_rank = topology.local_rank,
                                                                  .ranks = topology.local_ranks(),
                                                                  .host = machine_name(),
                                                                  .time_limit = time_limit});
    std::unique_ptr<Link> link;
    if (topology.is_bridge()) {
        comm.rendezvous = open_rendezvous(environment, time_limit);
        link = comm.rendezvous->open_link();
    }
    comm.collectives = make_collectives({.topology = topology,
                                         .arena = comm.arena.get(),
                                         .group = comm.group.get(),
                                         .link = std::move(link)});
    return comm;
}

PipelineComm open_pipeline_comm(const WorkerEnvironment& environment, JobComm& all,
                                PipelineCommParts parts) {
    const PipelinePlace& place = parts.place;
    const Topology& stage = place.of_stage;
    const Topology& world = all.collectives->topology();
    PipelineComm comm;
    JobComm& own = comm.stage;
    const UniqueFd memory = share_memory(*all.collectives, place);
    own.arena = std::make_unique<Arena>(Arena::from_descriptor(
        std::move(parts.layout), {memory.get(), stage.local_rank, parts.time_limit}));
    own.arena->populate(stage.local_rank);
    const auto first = place.members.begin() + stage.first_rank(stage.node_rank);
    own.group = std::make_unique<HostGroup>(
        *own.arena, HostGroupOptions{.local_rank = stage.local_rank,
                                     .ranks = {first, first + stage.local_world_size()},
                                     .host = machine_name(),
                                     .time_limit = parts.time_limit});
    const std::vector<int> local_ranks = local_ranks_of(place, world);
    const bool goes_far = std::ranges::count(local_ranks, -1) > 0;
    Rendezvous* rendezvous = all.rendezvous.get();  // rank 0 cannot serve another one
    if (rendezvous == nullptr && (stage.is_bridge() || goes_far)) {
        own.rendezvous = open_rendezvous(environment, parts.time_limit);
        rendezvous = own.rendezvous.get();
    }
    std::unique_ptr<Link> bridge;
    if (stage.is_bridge())
        bridge = rendezvous->open_link({fmt::format("stage/{}/{}", place.stage, stage.local_rank),
                                        stage.node_rank, stage.node_count()});
    own.collectives = make_collectives({.topology = stage,
                                        .arena = own.arena.get(),
                                        .group = own.group.get(),
                                        .link = std::move(bridge)});
    if (goes_far)
        comm.far = rendezvous->open_link(
            {fmt::format("pipeline/{}", stage.rank()), place.stage, place.stages});
    comm.near =
        std::make_unique<HostLink>(*all.arena, parts.messages, *all.group,
                                   HostLinkPlace{place.stage, local_ranks}, parts.time_limit);
    for (const int local_rank : local_ranks)
        comm.links.push_back(local_rank < 0 ? comm.far.get() : comm.near.get());
    return comm;
}

}  // namespace dslaunch
