// Which host needs which elements, and how the bridges of a host share that work. Where it stands:
// shards of the plan -> node ranges -> collectives (reduce to owners, gather). Pure, no threads.
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

// The length of what RANGES tile in order; empty ones are allowed. REQUIRES: they begin at 0,
// leave nothing out, overlap nowhere, and name nodes below NODE_COUNT or kEveryNode.
[[nodiscard]] int64_t tiled_numel(std::span<const NodeRange> ranges, int node_count);

// The ranges of NODE, one after the other, are a stream, which is cut as part_range cuts: where the
// elements of part PART lie, in order, neighbours joined, none of them empty.
[[nodiscard]] std::vector<Range> stream_part(std::span<const NodeRange> ranges, int node,
                                             PartOf part);

}  // namespace dslaunch::runtime
