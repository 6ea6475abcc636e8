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
#include "launch/machine/machine_name.h"

namespace dslaunch::runtime {

namespace {

std::unique_ptr<Arena> open_arena(const launch::WorkerEnvironment& environment, ArenaLayout layout,
                                  Duration time_limit) {
    if (environment.arena_fd < 0 && environment.local_world_size > 1)
        fail(ExitCode::kSetup,
             "DSL_ARENA_FD is not set, but {} workers of this node share an arena; start dsworker "
             "with dslaunch",
             environment.local_world_size);
    if (environment.arena_fd < 0)
        return std::make_unique<Arena>(Arena::anonymous(std::move(layout)));
    return std::make_unique<Arena>(Arena::from_descriptor(
        std::move(layout), {environment.arena_fd, environment.local_rank, time_limit}));
}

// A file descriptor of another process.
struct SharedFile {
    int process = 0;
    int fd = -1;
};

// Opens FILE. FILE is gone if its owner has exited because another rank failed. In this case,
// throws the error of that failure.
UniqueFd open_shared(const SharedFile& file, const HostGroup& host) {
    const std::string path = fmt::format("/proc/{}/fd/{}", file.process, file.fd);
    UniqueFd own(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!own.valid()) {
        const int error = errno;
        if (error == ENOENT) host.check_alive();
        fail(ExitCode::kSetup,
             "cannot open the memory that ranks of a stage or a tensor group share: {}: {}; these "
             "ranks must run as one user, in one PID namespace, with /proc mounted",
             path, std::strerror(error));
    }
    return own;
}

UniqueFd make_shared() {
    UniqueFd own(::memfd_create("dslaunch-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!own.valid())
        fail(ExitCode::kSetup,
             "cannot create the memory that ranks of a stage or a tensor group share: {}",
             std::strerror(errno));
    return own;
}

// Opens the arena of this rank's group on this host. All ranks of the job call it. In each group,
// the first rank makes the arena before the other ranks open it, so the ranks of a group do not
// wait for each other. Ranks wait only in the collectives of ALL, which end if a rank fails.
std::unique_ptr<Arena> open_group_arena(JobComm& all, GroupCommParts& parts) {
    const Topology& group = parts.place.topology;
    const auto first = static_cast<size_t>(parts.place.members[group.first_rank(group.node_rank)]);
    const auto open = [&](int fd) {
        return std::make_unique<Arena>(Arena::from_descriptor(
            std::move(parts.layout), {fd, group.local_rank, parts.time_limit}));
    };
    UniqueFd own;
    std::unique_ptr<Arena> arena;
    if (group.local_rank == 0) {
        own = make_shared();
        arena = open(own.get());
    }
    const std::vector<SharedFile> files =
        gather_values(*all.collectives, SharedFile{::getpid(), own.get()});
    if (group.local_rank > 0) {
        own = open_shared(files[first], *all.group);
        arena = open(own.get());
    }
    arena->populate(group.local_rank);
    all.collectives->barrier();  // the first rank keeps the arena open until here
    return arena;
}

}  // namespace

std::vector<int> hosts_of(const Topology& world, const std::vector<int>& ranks) {
    std::vector<int> hosts;
    for (const int rank : ranks)
        hosts.push_back(Topology::of_rank(world.node_sizes, rank).node_rank);
    return hosts;
}

JobComm open_job_comm(const launch::WorkerEnvironment& environment, ArenaLayout layout,
                      Duration time_limit, int streams) {
    const Topology topology = Topology::of_rank(environment.node_sizes, environment.rank);
    DSL_CHECK(layout.local_world_size() == topology.local_world_size(),
              "the layout is for {} local ranks, but there are {}", layout.local_world_size(),
              topology.local_world_size());
    JobComm comm;
    comm.arena = open_arena(environment, std::move(layout), time_limit);
    comm.arena->populate(topology.local_rank);
    comm.group =
        std::make_unique<HostGroup>(*comm.arena, HostGroupOptions{.local_rank = topology.local_rank,
                                                                  .ranks = topology.local_ranks(),
                                                                  .host = launch::machine_name(),
                                                                  .time_limit = time_limit});
    std::unique_ptr<Link> link;
    if (topology.is_bridge()) {
        comm.rendezvous = std::make_unique<Rendezvous>(environment, time_limit, streams);
        link = comm.rendezvous->open_link();
    }
    comm.collectives = make_collectives({.topology = topology,
                                         .arena = comm.arena.get(),
                                         .group = comm.group.get(),
                                         .link = std::move(link)});
    return comm;
}

JobComm open_group_comm(const launch::WorkerEnvironment& environment, JobComm& all,
                        GroupCommParts parts) {
    const Topology& group = parts.place.topology;
    const std::vector<int>& members = parts.place.members;
    JobComm own;
    own.arena = open_group_arena(all, parts);
    const auto first = members.begin() + group.first_rank(group.node_rank);
    own.group = std::make_unique<HostGroup>(
        *own.arena, HostGroupOptions{.local_rank = group.local_rank,
                                     .ranks = {first, first + group.local_world_size()},
                                     .host = launch::machine_name(),
                                     .time_limit = parts.time_limit});
    std::unique_ptr<Link> bridge;
    if (group.is_bridge()) {
        // Only a rank without a rendezvous makes one. Rank 0 already has one, and could not serve a
        // second store.
        Rendezvous* rendezvous = all.rendezvous.get();
        if (rendezvous == nullptr) {
            own.rendezvous = std::make_unique<Rendezvous>(environment, parts.time_limit);
            rendezvous = own.rendezvous.get();
        }
        std::vector<int> first_ranks;
        for (int node = 0; node < group.node_count(); ++node)
            first_ranks.push_back(members[group.first_rank(node)]);
        bridge = rendezvous->open_link(
            {fmt::format("{}/{}/{}", parts.name, members.front(), group.local_rank),
             group.node_rank, group.node_count()});
        bridge->set_hosts(hosts_of(all.collectives->topology(), first_ranks));
    }
    own.collectives = make_collectives({.topology = group,
                                        .arena = own.arena.get(),
                                        .group = own.group.get(),
                                        .link = std::move(bridge)});
    return own;
}

}  // namespace dslaunch::runtime
