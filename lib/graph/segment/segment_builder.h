// Builds one segment's graph out of a range of a lowered graph's nodes.
#pragma once

#include "graph/segment/segment.h"

namespace dslaunch::graph {

struct SegmentRange {
    int64_t begin = 0;  // positions in CutMap::nodes
    int64_t end = 0;
    int64_t draw_ordinal_first = 0;
};

struct LiveRange {
    std::vector<torch::jit::Value*> in;   // the values alive at the range's begin: the segment's
                                          // first inputs
    std::vector<torch::jit::Value*> out;  // those alive at its end; the graph's outputs for the
                                          // last segment
};

// The segment without its Code.
[[nodiscard]] Segment build_segment(const Model& model, const LoweredGraph& lowered,
                                    const CutMap& map, const SegmentRange& range,
                                    const LiveRange& live);

}  // namespace dslaunch::graph
