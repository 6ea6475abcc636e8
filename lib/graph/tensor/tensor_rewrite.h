// A lowered graph made tensor parallel: weights are shares, collectives are inserted where the flow
// of placements needs them, and shapes are adapted. Data path: lower.h -> [here] -> cuts and
// segments, which treat the result like any lowered graph. No shared state. See
// docs/scale/tensor-parallel.md.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/nodes/graph_nodes.h"
#include "graph/tensor/graph_facts.h"
#include "graph/tensor/tensor_placement.h"
#include "plan/tensor/tensor_plan.h"
#include "plan/tensor/tensor_rules.h"

namespace dslaunch::graph {

// A rewritten graph, the plan of its shares, and its link to the original graph.
struct TensorModel {
    // The graph, the same on every rank. Its parameters must be the shares (share_of.h) that the
    // shards of the plan describe.
    LoweredGraph lowered;
    plan::TensorPlan plan;
    // TWINS: for each value of the original graph, the value of this graph that replaces it.
    // PLACEMENTS: the placements of the original graph's top-level values.
    Twins twins;
    std::unordered_map<const Value*, TensorPlacement> placements;
};

// Rewrites a copy of LOWERED for RULES.size ranks. INPUTS: a micro batch and MODEL's tensors; the
// graph runs once on them to find shapes. Throws what find_tensor_rules() throws, and Error{kInput}
// for a graph that needs the module itself.
[[nodiscard]] TensorModel make_tensor_parallel(const Model& model, const LoweredGraph& lowered,
                                               const GraphInputs& inputs,
                                               const plan::TensorRules& rules);

// Rewrites a copy of LOWERED for SIZE ranks that share the positions of every sample. Each rank has
// all parameters and computes summands of their gradients. Attention exchanges positions for heads
// and back.
[[nodiscard]] TensorModel make_sequence_parallel(const Model& model, const LoweredGraph& lowered,
                                                 const GraphInputs& inputs, int size);

// Returns the part of PARAMETERS that tensor rank PART.index of PART.parts stores; shares are
// copies.
[[nodiscard]] std::vector<at::Tensor> tensor_shares(const std::vector<at::Tensor>& parameters,
                                                    const plan::TensorPlan& plan, PartOf part);

}  // namespace dslaunch::graph
