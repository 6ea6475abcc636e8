#include "runtime/comm/topology.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace dslaunch {

Topology Topology::of_rank(std::vector<int> node_sizes, int rank) {
    if (node_sizes.empty()) fail(ExitCode::kSetup, "the list of node sizes is empty");
    Topology topology{.node_sizes = std::move(node_sizes)};
    for (size_t node = 0; node < topology.node_sizes.size(); ++node) {
        if (topology.node_sizes[node] < 1)
            fail(ExitCode::kSetup, "node {} has {} workers; each node needs at least one", node,
                 topology.node_sizes[node]);
    }
    if (rank < 0 || rank >= topology.world_size())
        fail(ExitCode::kSetup, "rank {} is not one of the {} ranks of the nodes", rank,
             topology.world_size());
    topology.local_rank = rank;
    while (topology.local_rank >= topology.local_world_size()) {
        topology.local_rank -= topology.local_world_size();
        ++topology.node_rank;
    }
    return topology;
}

int Topology::world_size() const {
    return std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
}

int Topology::first_rank(int node) const {
    return std::accumulate(node_sizes.begin(), node_sizes.begin() + node, 0);
}

int Topology::bridge_count() const {
    return node_count() == 1 ? 0 : *std::min_element(node_sizes.begin(), node_sizes.end());
}

}  // namespace dslaunch
