#include "runtime/comm/topology.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

namespace dslaunch {

namespace {

constexpr int64_t kBorderNumel = 16;  // a cache line of fp32: neighbours never write to one line

}  // namespace

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

Range part_range(int64_t numel, PartOf part) {
    DSL_CHECK(numel >= 0 && part.index >= 0 && part.index < part.parts,
              "part {} of {} of {} elements", part.index, part.parts, numel);
    const int64_t share = round_up((numel + part.parts - 1) / part.parts, kBorderNumel);
    const int64_t begin = std::min(numel, share * part.index);
    return {begin, std::min(share, numel - begin)};
}

Range intersect(const Range& a, const Range& b) {
    const int64_t begin = std::max(a.begin, b.begin);
    return {begin, std::max<int64_t>(0, std::min(a.end(), b.end()) - begin)};
}

}  // namespace dslaunch
