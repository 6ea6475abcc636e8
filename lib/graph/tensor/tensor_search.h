// Finds the parameters of a model that may be split among the ranks of a tensor group, by trying
// splits in the flow of placements. Data path: placement_flow.h -> [here] -> tensor_rewrite.cpp. No
// shared state.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/tensor/placement_flow.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::graph {

// The parameters that are split among the ranks: some by given rules, the others as the graph
// allows.
struct TensorFindings {
    TensorDecisions decisions;
    std::map<int, plan::TensorRule> rules;  // rules of the parameters that are split or whose rule
                                            // was given
    std::map<int, std::string> why;         // reasons for these rules, and for layers that stay
                                            // whole
    std::set<int> unproven;                 // layers that stay whole because of an obstacle
};

// Finds the rules that FLOW allows. GIVEN: for each model parameter, the rule that the user asks
// for, if any. A layer stays whole if it meets an operator without a rule, or if its heads or width
// do not divide evenly. Throws Error{kInput} or Error{kConfig} if a given rule is not possible, or
// if neither attention nor an MLP can be split. If IS_STRICT, also throws if a layer of attention
// would stay whole, or if a width does not divide evenly. The error names the parameter, shape,
// node, module path and source line.
[[nodiscard]] TensorFindings find_tensor_rules(
    PlacementFlow& flow, const Model& model,
    const std::vector<std::optional<plan::TensorRule>>& given, bool is_strict);

}  // namespace dslaunch::graph
