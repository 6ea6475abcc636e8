// A lowered graph made tensor parallel: weights are shares, collectives stand where the flow of
// placements asks for them, shapes fit. Data path: lower.h -> [here] -> cuts and segments, which
// take the result as any lowered graph. No shared state. See docs/scale/tensor-parallel.md.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/tensor/placement_flow.h"

namespace dslaunch::graph {

struct TensorModel {
    // The graph, the same on every rank. Its parameters must be the shares (share_of,
    // share_of.h) by the shards of the plan.
    LoweredGraph lowered;
    plan::TensorPlan plan;
    // The value in place of each of the original graph's, and the placement of the top-level ones.
    Twins twins;
    std::unordered_map<const Value*, Placement> placements;
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

// Returns PARAMETERS as tensor rank PART.index of PART.parts holds them; shares are copies.
[[nodiscard]] std::vector<at::Tensor> tensor_shares(const std::vector<at::Tensor>& parameters,
                                                    const plan::TensorPlan& plan, PartOf part);

// The parameters that are split among the ranks: by the given rules, and for the rest by the graph
// (tensor_search.cpp).
struct TensorFindings {
    TensorDecisions decisions;
    std::map<int, plan::TensorRule> rules;  // rules of the parameters that are split or that a rule
                                            // was given for
    std::map<int, std::string> why;         // reasons for those, and for layers that stay whole
    std::set<int> unproven;                 // layers that stay whole for an obstacle
};

// Finds the rules that FLOW allows. GIVEN are rules by model parameter. A layer stays whole if it
// meets an operator without a rule, or its heads or width do not divide. Throws Error{kInput} or
// Error{kConfig} with parameter, shape, node, module path and source line for a given rule that is
// not possible, and for a model in which neither attention nor an MLP can be split; STRICT: for
// layers of attention and widths that do not divide, too.
[[nodiscard]] TensorFindings find_tensor_rules(
    PlacementFlow& flow, const Model& model,
    const std::vector<std::optional<plan::TensorRule>>& given, bool strict);

}  // namespace dslaunch::graph
