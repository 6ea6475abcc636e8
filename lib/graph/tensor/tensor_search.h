// The choice of the parameters of a model that are split among the ranks of a tensor group: by the
// rules that are given, and for the rest by the graph. A layer is tried by its outputs; the flow of
// placements shows which others must follow, and the node at which nothing is split again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/tensor/placement_flow.h"

namespace dslaunch::graph {

struct TensorFindings {
    TensorDecisions decisions;
    std::map<int, plan::TensorRule> rules;  // rules of the parameters that are split or that a rule
                                            // was given for
    std::map<int, std::string> why;         // reasons for those, and for layers that stay whole
    std::set<int> unproven;                 // layers that stay whole for an obstacle
};

// GIVEN are rules by model parameter. A layer that meets an operator without a rule, or whose heads
// or width do not divide, stays whole. Throws Error{kInput} or Error{kConfig} with parameter,
// shape, node, module path and source line for a given rule that is not possible, and for a model
// in which neither attention nor an MLP can be split; STRICT: for layers of attention and widths
// that do not divide, too.
[[nodiscard]] TensorFindings find_tensor_rules(
    PlacementFlow& flow, const Model& model,
    const std::vector<std::optional<plan::TensorRule>>& given, bool strict);

}  // namespace dslaunch::graph
