// Which parameters of a model are split among the ranks of a tensor group: the rules that are
// given, and for the rest what the graph shows. A layer is tried by its outputs; the flow of
// placements says which others must follow, and where it closes again with nothing split.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/tensor/placement_flow.h"

namespace dslaunch::graph {

struct TensorFindings {
    TensorDecisions decisions;
    std::map<int, plan::TensorRule> rules;  // of the parameters that are split or asked about
    std::map<int, std::string> why;         // of those, and of layers that stay whole
};

// GIVEN: by model parameter. A given rule that cannot be, attention whose heads do not divide, a
// layer whose width does not, and a model of which nothing can be split are Error{kInput} or
// Error{kConfig} with parameter, shape, node, module path and source line.
[[nodiscard]] TensorFindings find_tensor_rules(
    PlacementFlow& flow, const Model& model,
    const std::vector<std::optional<plan::TensorRule>>& given);

}  // namespace dslaunch::graph
