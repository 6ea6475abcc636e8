// The schedule of `dslaunch health`'s search: who measures the way to whom, and when. No host has
// two partners in a round, so that each pair is measured undisturbed and many at once. Pure.
#pragma once

#include <vector>

namespace dslaunch::health {

// A way from one node to another, by node rank.
struct NodeLink {
    int from = 0;
    int to = 0;

    bool operator==(const NodeLink&) const = default;
    auto operator<=>(const NodeLink&) const = default;  // NOLINT(modernize-use-nullptr): no pointer
};

using LinkRound = std::vector<NodeLink>;

// Returns all ways between NODE_COUNT nodes. The circle method pairs everybody with everybody in
// node_count - 1 rounds (node_count when it is odd: one node rests), once in each direction.
[[nodiscard]] std::vector<LinkRound> all_link_rounds(int node_count);

// Arranges LINKS, each once, in few rounds: each goes into the first round with room for both ends.
[[nodiscard]] std::vector<LinkRound> rounds_of(const std::vector<NodeLink>& links);

}  // namespace dslaunch::health
