// Values of a graph that may share memory with its inputs and constants. LibTorch's alias analysis
// takes all inputs of a graph for aliases of each other; a model's are distinct tensors, so
// it runs on a copy in which a node of its own makes each. It also takes whatever once stood in a
// list for aliases, which written_values.h does not; both take too much. One thread at a time.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>

#include "graph/writes/written_values.h"

namespace torch::jit {
class AliasDb;
}

namespace dslaunch::graph {

class InputAliases {
  public:
    // GRAPH must not change as long as this lives.
    explicit InputAliases(const torch::jit::Graph& graph);
    ~InputAliases();
    InputAliases(const InputAliases&) = delete;
    InputAliases& operator=(const InputAliases&) = delete;

    // True if VALUE, at any depth of the graph, may be ROOT, a view of it, or a list that holds
    // one. ROOT is an input or a constant of the graph.
    [[nodiscard]] bool may_share(const torch::jit::Value* value,
                                 const torch::jit::Value* root) const;

  private:
    mutable MemorySets sets_;
    std::shared_ptr<torch::jit::Graph> scratch_;
    std::unordered_map<const torch::jit::Value*, torch::jit::Value*> twins_;
    std::unique_ptr<torch::jit::AliasDb> aliases_;
};

enum class WritesCounted : uint8_t {
    kAll,
    kByValues  // not those that take constants alone, `add_(0)`: a trial pass shows what they do
};

// Returns the inputs of GRAPH that some node writes in place.
[[nodiscard]] std::set<const torch::jit::Value*> find_written_inputs(
    const torch::jit::Graph& graph, WritesCounted counted = WritesCounted::kAll);

}  // namespace dslaunch::graph
