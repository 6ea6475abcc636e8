// One segment of a model, whose graph is built from a range of a lowered graph's nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/segment/cut.h"

namespace torch::jit {
struct Code;
struct Graph;
struct Value;
}  // namespace torch::jit

namespace dslaunch::graph {

struct Segment {
    std::string name;  // module path of the nodes: "blocks.3", or "wte..blocks.0"
    std::shared_ptr<torch::jit::Graph> graph;  // inputs: [module?] live values… parameters…
                                               // buffers…
    std::shared_ptr<torch::jit::Code> code;    // shared by segments whose graphs are equal
    std::vector<int> parameters;               // model parameters among its inputs, in their order
    std::vector<int> buffers;
    bool module_input = false;  // true: takes the module itself (interface calls), and may read
                                // everything under it (SegmentedModel::parameters_of)
    int64_t nodes = 0;
    int64_t draw_ordinal_first = 0;  // ordinal of its first drawing node
    int64_t draws = 0;               // number of drawing nodes
};

struct SegmentRange {
    int64_t begin = 0;  // positions in CutMap::nodes
    int64_t end = 0;
    int64_t draw_ordinal_first = 0;
};

struct LiveRange {
    std::vector<torch::jit::Value*> in;   // the values alive at the range's begin: the segment's
                                          // first inputs
    std::vector<torch::jit::Value*> out;  // the values alive at its end; for the last segment the
                                          // graph's outputs
};

// The segment of RANGE without its Code.
[[nodiscard]] Segment build_segment(const Model& model, const LoweredGraph& lowered,
                                    const CutMap& map, const SegmentRange& range,
                                    const LiveRange& live);

}  // namespace dslaunch::graph
