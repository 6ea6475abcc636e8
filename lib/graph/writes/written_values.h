// Which tensors of a graph change behind their reader. LibTorch's AliasDb takes all inputs of a
// graph for aliases of each other; parameters and buffers of a model are not. Used by the rules of
// tensor ranks (placement_flow.h) and for the buffers that ranks move apart. No state; any thread.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <set>
#include <unordered_map>

namespace dslaunch::graph {

// Sets of values of a graph that may share memory, by what the schemas of its operators say: all
// that a branch or a loop reads or makes is one set, as is what stands in one list.
class MemorySets {
  public:
    explicit MemorySets(const torch::jit::Graph& graph);

    // The member that stands for VALUE's set.
    [[nodiscard]] const torch::jit::Value* set_of(const torch::jit::Value* value);
    // True if NODE, at the top level, makes a list whose elements its readers look at and no more.
    [[nodiscard]] bool is_read_list(const torch::jit::Node& node) const {
        return read_lists_.count(&node) > 0;
    }
    void unite(const torch::jit::Value* a, const torch::jit::Value* b) {
        parent_[set_of(a)] = set_of(b);
    }

  private:
    std::unordered_map<const torch::jit::Value*, const torch::jit::Value*> parent_;
    std::set<const torch::jit::Node*> read_lists_;
};

// The tensors at the top level of GRAPH, inputs included, that a node behind their maker writes in
// place, itself or through a view. Inputs of GRAPH share no memory with each other.
[[nodiscard]] std::set<const torch::jit::Value*> find_written_values(
    const torch::jit::Graph& graph);

// The inputs of GRAPH that its nodes both write and read: of those that nodes write, the ones whose
// memory some node reads to compute another value.
[[nodiscard]] std::set<const torch::jit::Value*> find_inputs_written_and_read(
    const torch::jit::Graph& graph);

}  // namespace dslaunch::graph
