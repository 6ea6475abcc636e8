#include "runtime/comm/ranks/node_ranges.h"

#include <map>

#include "base/check.h"

namespace dslaunch::runtime {

int64_t tiled_numel(std::span<const NodeRange> ranges, int node_count) {
    int64_t end = 0;
    for (const NodeRange& owned : ranges) {
        DSL_CHECK(
            owned.range.begin == end && owned.range.numel >= 0,
            "a range of {} elements at {} does not follow the previous range, which ends at {}",
            owned.range.numel, owned.range.begin, end);
        DSL_CHECK(owned.node >= kEveryNode && owned.node < node_count,
                  "a range belongs to node {}, but there are {} nodes", owned.node, node_count);
        end = owned.range.end();
    }
    return end;
}

std::vector<Range> stream_part(std::span<const NodeRange> ranges, int node, PartOf part) {
    int64_t stream_numel = 0;
    for (const NodeRange& owned : ranges)
        if (owned.node == node) stream_numel += owned.range.numel;
    const Range wanted = part_range(stream_numel, part);
    std::vector<Range> pieces;
    int64_t at = 0;  // position in the stream
    for (const NodeRange& owned : ranges) {
        if (owned.node != node) continue;
        const Range both = intersect({at, owned.range.numel}, wanted);
        const Range piece{owned.range.begin + both.begin - at, both.numel};
        at += owned.range.numel;
        if (piece.numel == 0) continue;
        if (!pieces.empty() && pieces.back().end() == piece.begin) {
            pieces.back().numel += piece.numel;
        } else {
            pieces.push_back(piece);
        }
    }
    return pieces;
}

int64_t sent_numel(std::span<const NodeRange> ranges, int node, PartOf part) {
    std::map<int, int64_t> numel;
    for (const NodeRange& owned : ranges)
        if (owned.node != kEveryNode && owned.node != node) numel[owned.node] += owned.range.numel;
    int64_t sent = 0;
    for (const auto& [owner, of_owner] : numel) sent += part_range(of_owner, part).numel;
    return sent;
}

}  // namespace dslaunch::runtime
