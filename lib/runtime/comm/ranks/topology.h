// The place of each rank: hosts by node rank, and on each host its local ranks. Global ranks are
// numbered host by host. Groups of ranks and stages of a pipeline have places of the same type.
// Data path: worker environment -> topology -> host group, links, collectives. Value types, no
// threads.
#pragma once

#include <cstddef>
#include <vector>

namespace dslaunch::runtime {

// The hosts of a group of ranks, and the place of one of these ranks.
struct Topology {
    std::vector<int> node_sizes = {1};  // local ranks of each host, by node rank; each >= 1
    int node_rank = 0;
    int local_rank = 0;

    // Throws Error{kSetup} if sizes are empty or below 1, or if RANK is not one of the ranks.
    [[nodiscard]] static Topology of_rank(std::vector<int> node_sizes, int rank);
    // Returns the topology of a group and RANK's place in it. MEMBERS are the ranks of the group.
    // NODE_SIZES has the number of all ranks on each host. Hosts without a member are left out.
    // REQUIRES: MEMBERS ascend, and RANK is one of them.
    [[nodiscard]] static Topology of_member(const std::vector<int>& node_sizes,
                                            const std::vector<int>& members, int rank);

    // Returns the same ranks, but each on a host of its own. Used for ranks on devices, because
    // these share no memory.
    [[nodiscard]] Topology each_alone() const;

    // Return the number of hosts, the number of ranks on this host, the number of all ranks, and
    // this rank's global number.
    [[nodiscard]] int node_count() const { return static_cast<int>(node_sizes.size()); }
    [[nodiscard]] int local_world_size() const { return node_sizes[node_rank]; }
    [[nodiscard]] int world_size() const;
    [[nodiscard]] int rank() const { return first_rank(node_rank) + local_rank; }
    // Returns the global rank of local rank 0 of NODE.
    [[nodiscard]] int first_rank(int node) const;
    // Returns the global ranks on this host, by local rank.
    [[nodiscard]] std::vector<int> local_ranks() const;
    // Returns the number of bridges of each host: the number of ranks of the smallest host, or 0 if
    // there is only one host. The bridges are the local ranks from 0 to bridge_count() - 1. Bridge
    // k of a host is linked to bridge k of the other hosts.
    [[nodiscard]] int bridge_count() const;
    [[nodiscard]] bool is_bridge() const { return local_rank < bridge_count(); }
};

// A group of a job's ranks, for example the ranks of a stage, and the place of one rank in it.
struct GroupPlace {
    Topology topology;
    std::vector<int> members = {0};  // ranks of the job, ascending
};

// A rank's place in a pipeline: the ranks of its stage, and the ranks to which it sends and from
// which it receives.
struct PipelinePlace {
    int stage = 0;
    int stages = 1;
    Topology of_stage;          // a topology of the stage's ranks only
    std::vector<int> members;   // the job's ranks in the stage, ascending
    std::vector<int> pipeline;  // by stage, the rank with this rank's place in the stage

    // Returns true if there are several stages.
    [[nodiscard]] bool is_pipeline() const { return stages > 1; }
};

// Returns RANK's place. STAGES has the ranks of each stage in ascending order, and all stages have
// equally many ranks. A single stage has all ranks.
[[nodiscard]] PipelinePlace make_pipeline_place(const std::vector<int>& node_sizes,
                                                const std::vector<std::vector<int>>& stages,
                                                int rank);

}  // namespace dslaunch::runtime
