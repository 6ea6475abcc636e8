// A lowered graph made tensor parallel: weights are shares, collectives stand where the flow of
// placements asks for them, shapes fit. Data path: lower.h -> [here] -> cuts and segments, which
// take the result as any lowered graph. No shared state. See docs/scale/tensor-parallel.md.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/tensor/placement_flow.h"

namespace dslaunch::graph {

struct TensorModel {
    // The graph, the same on every rank. Its parameters must be the shares (share_of,
    // share_of.h) by the shards of the plan.
    LoweredGraph lowered;
    plan::TensorPlan plan;
    // The value that replaces each top-level value of the original graph, and its placement.
    std::unordered_map<const torch::jit::Value*, torch::jit::Value*> twins;
    std::unordered_map<const torch::jit::Value*, Placement> placements;
};

// Rewrites a copy of LOWERED for RULES.size ranks. INPUTS are a micro batch and MODEL's tensors,
// run once for shapes. Throws as find_tensor_rules does, and Error{kInput} for a graph that needs
// the module itself.
[[nodiscard]] TensorModel make_tensor_parallel(const Model& model, const LoweredGraph& lowered,
                                               const GraphInputs& inputs,
                                               const plan::TensorRules& rules);

// Rewrites a copy of LOWERED for SIZE ranks that share the positions of every sample. Each rank
// holds all parameters and gets summands of their gradients; attention exchanges positions for
// heads and back.
[[nodiscard]] TensorModel make_sequence_parallel(const Model& model, const LoweredGraph& lowered,
                                                 const GraphInputs& inputs, int size);

// PARAMETERS as tensor rank PART.index of PART.parts holds them; shares are copies.
[[nodiscard]] std::vector<at::Tensor> tensor_shares(const std::vector<at::Tensor>& parameters,
                                                    const plan::TensorPlan& plan, PartOf part);

}  // namespace dslaunch::graph
