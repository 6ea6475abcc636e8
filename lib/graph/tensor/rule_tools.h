// Shared by the rules of operators: operator_rules.cpp, product_rules.cpp and shape_rules.cpp.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/tensor/placement_flow.h"

namespace dslaunch::graph {

// Returns LIKE, with dimension DIM split in its blocks.
[[nodiscard]] Placement moved_shard(const Placement& like, int64_t dim);
[[nodiscard]] bool is_none(const Value& value);
[[nodiscard]] int64_t dims_of(const PlacementFlow& flow, const Value* value);
// Returns the dimension, from 0, that input INDEX names in a tensor of DIMS; nothing: not known.
[[nodiscard]] std::optional<int64_t> dim_argument(const PlacementFlow& flow, const Node& node,
                                                  size_t index, int64_t dims);
// Returns the numbers of a list; nothing: it is none, or not known.
[[nodiscard]] std::optional<std::vector<int64_t>> int_list(const PlacementFlow& flow,
                                                           const Value* value);
// Passes a NODE without a split: it reads all its inputs for its share, and its output is a copy.
// Always returns true.
bool pass_copied(PlacementFlow& flow, Node& node);
// Splits the parameter at input INDEX in the way that LIKE is split. Always returns false.
bool split_parameter(PlacementFlow& flow, Node& node, size_t index, const Placement& like);

}  // namespace dslaunch::graph
