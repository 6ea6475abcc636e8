// Finds the tensors of a graph that are written in place. LibTorch's AliasDb takes all inputs of a
// graph for aliases of each other; parameters and buffers of a model are not. Used by the rules of
// tensor ranks (placement_flow.h) and for the buffers that ranks move apart. No state; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>

#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

// Sets of values of a graph that may share memory, by the schemas of its operators: all that a
// branch or a loop reads or makes is one set, and so are all members of one list.
class MemorySets {
  public:
    explicit MemorySets(const Graph& graph);

    // Returns the member that stands for VALUE's set.
    [[nodiscard]] const Value* set_of(const Value* value);
    // Returns true if NODE, at the top level, makes a list whose readers only look at its elements.
    [[nodiscard]] bool is_read_list(const Node& node) const { return read_lists_.count(&node) > 0; }
    void unite(const Value* a, const Value* b) { parent_[set_of(a)] = set_of(b); }

  private:
    std::unordered_map<const Value*, const Value*> parent_;
    std::set<const Node*> read_lists_;
};

// Returns the tensors at the top level of GRAPH, inputs included, that a later node writes in
// place, itself or through a view. Inputs of GRAPH share no memory with each other.
[[nodiscard]] std::set<const Value*> find_written_values(const Graph& graph);

// Returns the inputs of GRAPH that its nodes both write and read: some node reads their memory to
// compute another value.
[[nodiscard]] std::set<const Value*> find_inputs_written_and_read(const Graph& graph);

class InputAliases {
  public:
    // GRAPH must not change as long as this lives.
    explicit InputAliases(const Graph& graph);
    ~InputAliases();
    InputAliases(const InputAliases&) = delete;
    InputAliases& operator=(const InputAliases&) = delete;

    // Returns true if VALUE, at any depth of the graph, may be ROOT, a view of it, or a list that
    // holds one. ROOT is an input or a constant of the graph.
    [[nodiscard]] bool may_share(const Value* value, const Value* root) const;
    // Returns true if NODE may write to the memory of VALUE.
    [[nodiscard]] bool may_write(const Node& node, const Value* value) const;

  private:
    mutable MemorySets sets_;
    std::shared_ptr<Graph> scratch_;
    Twins twins_;
    std::unique_ptr<torch::jit::AliasDb> aliases_;
};

// A node that writes in place what may be ROOT, an input or a constant of its graph.
struct RootWrite {
    Node* node = nullptr;
    size_t input = 0;  // of NODE
    Value* root = nullptr;
};
// Returns the writes to ROOTS in GRAPH: by node in the order of the graph, by input, by root.
[[nodiscard]] std::vector<RootWrite> find_writes(const Graph& graph,
                                                 const std::vector<Value*>& roots);

enum class WritesCounted : uint8_t {
    kAll,
    kByValues  // except with constants alone, `add_(0)`: a trial pass shows their effect
};

// Returns the inputs of GRAPH that some node writes in place.
[[nodiscard]] std::set<const Value*> find_written_inputs(
    const Graph& graph, WritesCounted counted = WritesCounted::kAll);

}  // namespace dslaunch::graph
