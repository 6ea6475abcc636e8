// The place of each rank: hosts by node rank, and on each host its local ranks. Global ranks count
// host by host. Groups of ranks and stages of a pipeline have places of the same kind. Data path:
// worker environment -> topology -> host group, links, collectives. Value types, no threads.
#pragma once

#include <cstddef>
#include <vector>

namespace dslaunch::runtime {

struct Topology {
    std::vector<int> node_sizes = {1};  // local ranks of each host, by node rank; each >= 1
    int node_rank = 0;
    int local_rank = 0;

    // Throws Error{kSetup} if sizes are empty or below 1, or RANK is not one of them.
    [[nodiscard]] static Topology of_rank(std::vector<int> node_sizes, int rank);
    // Returns MEMBERS of the world of NODE_SIZES as a world of their own, seen from one of them.
    // Hosts without a member are left out. REQUIRES: members ascend, RANK is one.
    [[nodiscard]] static Topology of_member(const std::vector<int>& node_sizes,
                                            const std::vector<int>& members, int rank);

    // Returns the same ranks, each on a host of its own: ranks on devices share no memory.
    [[nodiscard]] Topology each_alone() const;

    [[nodiscard]] int node_count() const { return static_cast<int>(node_sizes.size()); }
    [[nodiscard]] int local_world_size() const { return node_sizes[node_rank]; }
    [[nodiscard]] int world_size() const;
    [[nodiscard]] int rank() const { return first_rank(node_rank) + local_rank; }
    // Returns the global rank of local rank 0 of NODE.
    [[nodiscard]] int first_rank(int node) const;
    // Returns the global ranks of this host, by local rank.
    [[nodiscard]] std::vector<int> local_ranks() const;
    // Returns the smallest host's number of ranks, or 0 on one host, where nobody opens a link.
    // Bridges are the local ranks 0..bridge_count()-1 of each host: bridge k talks to bridge k of
    // the other hosts.
    [[nodiscard]] int bridge_count() const;
    [[nodiscard]] bool is_bridge() const { return local_rank < bridge_count(); }
};

// Some ranks of a job as a world of their own, seen from one of them: the ranks of a stage, or the
// ranks that share a layer.
struct GroupPlace {
    Topology topology;
    std::vector<int> members = {0};  // ranks of the job, ascending
};

// A rank's place in a pipeline: the ranks of its stage, and the ranks it sends to and receives
// from.
struct PipelinePlace {
    int stage = 0;
    int stages = 1;
    Topology of_stage;          // the stage's ranks as a world of their own
    std::vector<int> members;   // the job's ranks in the stage, ascending
    std::vector<int> pipeline;  // one rank per stage, at this rank's place in its stage

    [[nodiscard]] bool is_pipeline() const { return stages > 1; }
};

// Returns RANK's place. STAGES are the ranks of each stage, ascending and equally many. One stage
// is the world itself.
[[nodiscard]] PipelinePlace make_pipeline_place(const std::vector<int>& node_sizes,
                                                const std::vector<std::vector<int>>& stages,
                                                int rank);

}  // namespace dslaunch::runtime
