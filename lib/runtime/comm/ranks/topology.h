// Which rank sits where: hosts by node rank, and on each host its local ranks; global ranks count
// host by host. Where it stands: worker environment -> topology -> host group, links, collectives.
// A value type, no threads.
#pragma once

#include <cstddef>
#include <vector>

namespace dslaunch::runtime {

struct Topology {
    std::vector<int> node_sizes = {1};  // local ranks of each host, by node rank; each >= 1
    int node_rank = 0;
    int local_rank = 0;

    // Throws Error{kSetup} when sizes are empty or below 1, or RANK is not one of them.
    [[nodiscard]] static Topology of_rank(std::vector<int> node_sizes, int rank);
    // MEMBERS of the world that NODE_SIZES says as a world of their own, seen from one of them:
    // hosts where none of them is are left out. REQUIRES: members ascend, RANK is one.
    [[nodiscard]] static Topology of_member(const std::vector<int>& node_sizes,
                                            const std::vector<int>& members, int rank);

    [[nodiscard]] int node_count() const { return static_cast<int>(node_sizes.size()); }
    [[nodiscard]] int local_world_size() const { return node_sizes[node_rank]; }
    [[nodiscard]] int world_size() const;
    [[nodiscard]] int rank() const { return first_rank(node_rank) + local_rank; }
    // Global rank of local rank 0 of NODE.
    [[nodiscard]] int first_rank(int node) const;
    // Global ranks of this host, by local rank.
    [[nodiscard]] std::vector<int> local_ranks() const;
    // Bridges are the local ranks 0..bridge_count()-1 of each host: bridge k talks to bridge k of
    // the other hosts. The smallest host says how many; 0 on one host, where nobody opens a link.
    [[nodiscard]] int bridge_count() const;
    [[nodiscard]] bool is_bridge() const { return local_rank < bridge_count(); }
};

}  // namespace dslaunch::runtime
