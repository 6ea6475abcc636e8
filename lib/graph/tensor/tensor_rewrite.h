// A lowered graph made tensor parallel: weights are shares, collectives stand where the flow of
// placements asks for them, shapes fit. Stands behind lower.h on the data way; whatever cuts and
// runs lowered graphs takes the result as one. No shared state. See docs/tensor-parallel.md.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/tensor/placement_flow.h"

namespace dslaunch::graph {

struct TensorModel {
    // The same on every rank; parameters are to be given as share_of (tensor_operators.h) the
    // shards of the plan.
    LoweredGraph lowered;
    plan::TensorPlan plan;
    // By top-level value of the graph that was rewritten: what stands for it, and where it lies.
    std::unordered_map<const torch::jit::Value*, torch::jit::Value*> twins;
    std::unordered_map<const torch::jit::Value*, Placement> placements;
};

// Rewrites a copy of LOWERED for RULES.size ranks. INPUTS: a micro batch and MODEL's tensors, run
// once for shapes. Throws as find_tensor_rules does, and Error{kInput} for a graph that needs the
// module itself.
[[nodiscard]] TensorModel make_tensor_parallel(const Model& model, const LoweredGraph& lowered,
                                               const GraphInputs& inputs,
                                               const plan::TensorRules& rules);

// The same for SIZE ranks that share the positions of every sample and hold all parameters, each of
// which gets summands of their gradients: attention exchanges positions for heads and back.
[[nodiscard]] TensorModel make_sequence_parallel(const Model& model, const LoweredGraph& lowered,
                                                 const GraphInputs& inputs, int size);

// MODEL's parameters as tensor rank PART.index of PART.parts holds them: shares are copies.
[[nodiscard]] std::vector<at::Tensor> tensor_shares(const std::vector<at::Tensor>& parameters,
                                                    const plan::TensorPlan& plan, PartOf part);

}  // namespace dslaunch::graph
