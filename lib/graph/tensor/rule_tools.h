// Helpers for the rules of operators: operator_rules.cpp, product_rules.cpp, shape_rules.cpp and
// sequence_attention_rules.cpp.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/tensor/flow_state.h"

namespace dslaunch::graph {

// Returns a placement that has the blocks of LIKE, but is split in dimension DIM.
[[nodiscard]] TensorPlacement moved_shard(const TensorPlacement& like, int64_t dim);
[[nodiscard]] bool is_none(const Value& value);
[[nodiscard]] int64_t dims_of(const FlowState& flow, const Value* value);
// Returns a dimension, counted from 0, in a tensor of DIMS dimensions. NODE's input INDEX names the
// dimension. Returns nothing if the input is not known.
[[nodiscard]] std::optional<int64_t> dim_argument(const FlowState& flow, const Node& node,
                                                  size_t index, int64_t dims);
// Returns the numbers of a list; nothing if VALUE is no list, or if they are not known.
[[nodiscard]] std::optional<std::vector<int64_t>> int_list(const FlowState& flow,
                                                           const Value* value);
// Places a NODE whose inputs are not split: every rank computes the whole output on its own copy of
// the inputs. Always returns true.
bool pass_copied(FlowState& flow, Node& node);
// Asks that the parameter at input INDEX be split like LIKE. Always returns false.
bool split_parameter(FlowState& flow, Node& node, size_t index, const TensorPlacement& like);

}  // namespace dslaunch::graph
