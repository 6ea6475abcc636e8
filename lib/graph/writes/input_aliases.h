// Finds the inputs and constants of a graph that its nodes write in place, directly or through a
// view, at any depth. Uses LibTorch's AliasDb on a copy of the graph in which inputs have separate
// memory. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "graph/nodes/graph_nodes.h"
#include "graph/writes/written_values.h"

namespace dslaunch::graph {

// The values of a graph that may share memory with its inputs or constants. Assumes that no two
// inputs or constants share memory. More exact than MemorySets.
class InputAliases {
  public:
    // GRAPH must not change while this object lives.
    explicit InputAliases(const Graph& graph);
    ~InputAliases();
    InputAliases(const InputAliases&) = delete;
    InputAliases& operator=(const InputAliases&) = delete;

    // Returns true if VALUE, at any depth of the graph, may be ROOT, a view of it, or a list that
    // contains either. ROOT is an input or a constant of the graph.
    [[nodiscard]] bool may_share(const Value* value, const Value* root) const;
    // Returns true if NODE may write to the memory of VALUE.
    [[nodiscard]] bool may_write(const Node& node, const Value* value) const;

  private:
    mutable MemorySets sets_;
    std::shared_ptr<Graph> scratch_;
    Twins twins_;
    std::unique_ptr<torch::jit::AliasDb> aliases_;
};

// A node that writes in place to a value that may be `root`. `root` is an input or a constant of
// the graph.
struct RootWrite {
    Node* node = nullptr;
    size_t input = 0;  // of NODE
    Value* root = nullptr;
};
// Returns the writes to ROOTS in GRAPH, sorted by node in the order of the graph, then by input,
// then by root.
[[nodiscard]] std::vector<RootWrite> find_writes(const Graph& graph,
                                                 const std::vector<Value*>& roots);

// The writes that find_written_inputs() counts.
enum class WritesCounted : uint8_t {
    kAll,
    kByValues  // without writes of constants, such as `add_(0)`: a trial pass shows their effect
};

// Returns the inputs of GRAPH that some node writes in place.
[[nodiscard]] std::set<const Value*> find_written_inputs(
    const Graph& graph, WritesCounted counted = WritesCounted::kAll);

}  // namespace dslaunch::graph
