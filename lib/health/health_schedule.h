// The schedule says who measures the way to whom, and when, in the search of `dslaunch health`:
// rounds in which no host has two partners, so that each pair is measured undisturbed and many at
// once. Pure.
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

// All ways between NODE_COUNT nodes: the circle method pairs everybody with everybody in
// node_count - 1 rounds (node_count when it is odd: one node rests), each once to and once fro.
[[nodiscard]] std::vector<LinkRound> all_link_rounds(int node_count);

// LINKS, each once, in few rounds: each goes into the first round that has room for both its ends.
[[nodiscard]] std::vector<LinkRound> rounds_of(const std::vector<NodeLink>& links);

}  // namespace dslaunch::health
