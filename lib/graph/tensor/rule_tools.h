// What the rules of operators share. Used by operator_rules.cpp and product_rules.cpp alone.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>

#include "graph/tensor/placement_flow.h"

namespace dslaunch::graph {

[[nodiscard]] Placement copied_placement();
// LIKE, with dimension DIM split in its blocks.
[[nodiscard]] Placement moved_shard(const Placement& like, int64_t dim);
[[nodiscard]] bool is_none(const torch::jit::Value& value);
[[nodiscard]] int64_t dims_of(const PlacementFlow& flow, const torch::jit::Value* value);
// The input of NODE that is argument NAME; none: there is no such argument.
[[nodiscard]] std::optional<size_t> argument_at(const torch::jit::Node& node, const char* name);
// The number in a constant argument; nullopt if the argument is computed or None.
[[nodiscard]] std::optional<double> constant_number(const torch::jit::Node& node, const char* name);
// Splits the parameter at input INDEX in the way that LIKE is split. Always returns false.
bool split_parameter(PlacementFlow& flow, torch::jit::Node& node, size_t index,
                     const Placement& like);

}  // namespace dslaunch::graph
