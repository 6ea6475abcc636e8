// The schedule of `dslaunch health`'s search: which nodes measure the path between them, and in
// which round. A host has only one partner in a round, so that each pair is measured undisturbed
// and many pairs at once. Pure.
#pragma once

#include <vector>

namespace dslaunch::health {

// A path from one node to another, by node rank.
struct NodeLink {
    int from = 0;
    int to = 0;

    bool operator==(const NodeLink&) const = default;
    auto operator<=>(const NodeLink&) const = default;  // NOLINT(modernize-use-nullptr): no pointer
};

using LinkRound = std::vector<NodeLink>;

// Returns all paths between NODE_COUNT nodes. The circle method pairs each node with every other
// node in NODE_COUNT - 1 turns. If NODE_COUNT is odd, there is one more turn, and in each turn one
// node has no partner. A turn consists of two rounds, one for each direction.
[[nodiscard]] std::vector<LinkRound> all_link_rounds(int node_count);

// Arranges LINKS in few rounds: puts each link into the first round in which both of its nodes are
// free.
[[nodiscard]] std::vector<LinkRound> rounds_of(const std::vector<NodeLink>& links);

}  // namespace dslaunch::health
