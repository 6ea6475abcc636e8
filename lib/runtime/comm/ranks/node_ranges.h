// The ranges of elements that each host needs, and how a host's bridges divide that work. Data
// path: shards of the plan -> node ranges -> collectives (reduce to owners, gather). Pure, no
// threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/range.h"

namespace dslaunch::runtime {

inline constexpr int kEveryNode = -1;

// Elements that the ranks of NODE own, or that every host needs.
struct NodeRange {
    Range range;
    int node = kEveryNode;
};

// Returns the number of elements in all RANGES together. Empty ranges are allowed. REQUIRES: RANGES
// begin at 0, have no gaps, do not overlap, and name nodes below NODE_COUNT or kEveryNode.
[[nodiscard]] int64_t tiled_numel(std::span<const NodeRange> ranges, int node_count);

// Returns the ranges of part PART of a stream. The stream consists of the ranges of NODE, one after
// the other, and part_range() divides it. Neighbouring ranges of the result are joined, and empty
// ranges are left out.
[[nodiscard]] std::vector<Range> stream_part(std::span<const NodeRange> ranges, int node,
                                             PartOf part);

// Returns the number of elements that NODE sends to the nodes that own them. Only part PART of each
// node's stream counts; elements that every node needs do not count.
[[nodiscard]] int64_t sent_numel(std::span<const NodeRange> ranges, int node, PartOf part);

}  // namespace dslaunch::runtime
