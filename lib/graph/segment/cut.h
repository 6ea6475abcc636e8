// The places at which a lowered graph may be cut: those where no later node writes to a value alive
// there. Data path: lower.h -> [here] -> plan/choose/cut_choice.h, which picks among the places,
// and segment.h, which builds the pieces.
#pragma once

#include <unordered_set>
#include <vector>

#include "graph/lower/lower.h"
#include "plan/choose/cut_choice.h"

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace dslaunch::graph {

// The graph's top-level nodes that do work, in order, and the places between them. Positions count
// these nodes: position p is before nodes[p].
struct CutMap {
    std::vector<torch::jit::Node*> nodes;
    // Constants, and lists of parameters: cloned into every segment that reads them, never alive at
    // a cut.
    std::unordered_set<const torch::jit::Value*> everywhere;
    std::vector<plan::CutPlace> places;  // the legal places, by position, without 0 and
                                         // nodes.size()

    // Values alive at POSITION that a segment takes as inputs: arguments first, then by definition.
    [[nodiscard]] std::vector<torch::jit::Value*> alive_at(int64_t position,
                                                           const LoweredGraph& lowered) const;
};

[[nodiscard]] CutMap find_cuts(const LoweredGraph& lowered, const Model& model);

}  // namespace dslaunch::graph
