// Which tensors of a graph change behind their reader. LibTorch's AliasDb takes all inputs of a
// graph for aliases of each other; parameters and buffers of a model are not. Used by the rules of
// tensor ranks (placement_flow.h) and for the buffers that ranks move apart. No state; any thread.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <set>

namespace dslaunch::graph {

// The tensors at the top level of GRAPH, inputs included, that a node behind their maker writes in
// place, itself or through a view. Inputs of GRAPH share no memory with each other.
[[nodiscard]] std::set<const torch::jit::Value*> find_written_values(
    const torch::jit::Graph& graph);

// The inputs of GRAPH that its nodes both write and read: of those that nodes write, the ones whose
// memory some node reads to compute another value.
[[nodiscard]] std::set<const torch::jit::Value*> find_inputs_written_and_read(
    const torch::jit::Graph& graph);

}  // namespace dslaunch::graph
