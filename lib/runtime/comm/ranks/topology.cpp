#include "runtime/comm/ranks/topology.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::runtime {

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

Topology Topology::of_member(const std::vector<int>& node_sizes, const std::vector<int>& members,
                             int rank) {
    Topology own;
    own.node_sizes.clear();
    int last_node = -1;
    for (const int member : members) {
        const int node = of_rank(node_sizes, member).node_rank;
        if (node != last_node) own.node_sizes.push_back(0);
        last_node = node;
        ++own.node_sizes.back();
    }
    const auto place = std::ranges::find(members, rank) - members.begin();
    return of_rank(own.node_sizes, static_cast<int>(place));
}

int Topology::world_size() const {
    return std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
}

int Topology::first_rank(int node) const {
    return std::accumulate(node_sizes.begin(), node_sizes.begin() + node, 0);
}

std::vector<int> Topology::local_ranks() const {
    std::vector<int> ranks(static_cast<size_t>(local_world_size()));
    std::iota(ranks.begin(), ranks.end(), first_rank(node_rank));
    return ranks;
}

int Topology::bridge_count() const {
    return node_count() == 1 ? 0 : *std::min_element(node_sizes.begin(), node_sizes.end());
}

Topology Topology::each_alone() const {
    return {std::vector<int>(static_cast<size_t>(world_size()), 1), rank(), 0};
}

PipelinePlace make_pipeline_place(const std::vector<int>& node_sizes,
                                  const std::vector<std::vector<int>>& stages, int rank) {
    const auto own = std::ranges::find_if(stages, [&](const std::vector<int>& members) {
        return std::ranges::binary_search(members, rank);
    });
    DSL_CHECK(own != stages.end(), "rank {} is not in any stage", rank);
    PipelinePlace place;
    place.stage = static_cast<int>(own - stages.begin());
    place.stages = static_cast<int>(stages.size());
    place.members = *own;
    place.of_stage = Topology::of_member(node_sizes, *own, rank);
    const auto index = static_cast<size_t>(std::ranges::find(*own, rank) - own->begin());
    for (const std::vector<int>& members : stages) {
        DSL_CHECK(members.size() == own->size(),
                  "stages have {} and {} ranks, but must have the same number", members.size(),
                  own->size());
        place.pipeline.push_back(members[index]);
    }
    return place;
}

}  // namespace dslaunch::runtime
