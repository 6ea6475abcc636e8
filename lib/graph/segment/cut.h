// Finds the places at which a lowered graph may be cut: no later node writes to a value that is
// alive there. Makes the segments between cuts, each a graph of a range of nodes. Data path:
// lower.h -> [here] -> plan/choose/cut_choice.h, which chooses among the places, and
// segmented_model.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "plan/choose/cut_choice.h"

namespace dslaunch::graph {

// The graph's top-level nodes that do work, in order, and the places between them. Position p is
// before nodes[p].
struct CutMap {
    std::vector<Node*> nodes;
    // Constants and lists of parameters. They are cloned into every segment that reads them, and
    // are never alive at a cut.
    std::unordered_set<const Value*> everywhere;
    std::vector<plan::CutPlace> places;  // the legal places, by position, without 0 and
                                         // nodes.size()

    // Returns the values alive at POSITION that a segment takes: first arguments, then the others
    // in the order of their definition.
    [[nodiscard]] std::vector<Value*> alive_at(int64_t position, const LoweredGraph& lowered) const;
};

// Returns the nodes of LOWERED and the places between them where a cut changes no result.
[[nodiscard]] CutMap find_cuts(const LoweredGraph& lowered, const Model& model);

// A part of a model: the nodes between two cuts, as a separate graph.
struct Segment {
    std::string name;              // module path of the nodes: "blocks.3", or "wte..blocks.0"
    std::shared_ptr<Graph> graph;  // inputs: [module?] live values… parameters…
                                   // buffers…
    std::shared_ptr<Code> code;    // shared by segments whose graphs are equal
    std::vector<int> parameters;   // model parameters among its inputs, in their order
    std::vector<int> buffers;
    bool takes_module = false;  // true: takes the module itself (interface calls), and may read
                                // everything under it (SegmentedModel::parameters_of)
    int64_t nodes = 0;
    int64_t draw_ordinal_first = 0;  // ordinal of its first drawing node
    int64_t draws = 0;               // number of drawing nodes
};

// The nodes of a segment in the whole graph.
struct SegmentNodes {
    int64_t begin = 0;  // positions in CutMap::nodes
    int64_t end = 0;
    int64_t draw_ordinal_first = 0;
};

// The values that a segment takes and returns.
struct LiveRange {
    std::vector<Value*> in;   // the values alive at the range's begin: the segment's
                              // first inputs
    std::vector<Value*> out;  // the values alive at its end; for the last segment the
                              // graph's outputs
};

// Returns the segment of RANGE without its Code.
[[nodiscard]] Segment build_segment(const Model& model, const LoweredGraph& lowered,
                                    const CutMap& map, const SegmentNodes& range,
                                    const LiveRange& live);

}  // namespace dslaunch::graph
