// Finds the tensors that a graph writes in place, according to the schemas of its operators.
// LibTorch's AliasDb assumes that all inputs of a graph are aliases of each other; parameters and
// buffers of a model are not. Used by the rules of tensor parallelism (flow_graph.h), and for the
// buffers that each rank changes on its own. No state; any thread.
#pragma once

#include <set>
#include <unordered_map>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Sets of values of a graph that may share memory according to the schemas of its operators. All
// values that a branch or a loop reads or makes are in one set. All elements of a list are in one
// set too.
class MemorySets {
  public:
    explicit MemorySets(const Graph& graph);

    // Returns the member that represents VALUE's set.
    [[nodiscard]] const Value* set_of(const Value* value);
    // Returns true if NODE is at the top level and makes a list from which other nodes only read
    // elements.
    [[nodiscard]] bool is_read_list(const Node& node) const { return read_lists_.count(&node) > 0; }
    // Joins the sets of A and B.
    void unite(const Value* a, const Value* b) { parent_[set_of(a)] = set_of(b); }

  private:
    std::unordered_map<const Value*, const Value*> parent_;
    std::set<const Node*> read_lists_;
};

// Returns the tensors at the top level of GRAPH to which a later node writes in place, either
// directly or through a view. Inputs of GRAPH count too. REQUIRES: inputs of GRAPH share no memory
// with each other.
[[nodiscard]] std::set<const Value*> find_written_values(const Graph& graph);

// Returns the inputs of GRAPH that some node writes and some node reads. A node reads an input if
// it uses the input's elements to compute another value.
[[nodiscard]] std::set<const Value*> find_inputs_written_and_read(const Graph& graph);

}  // namespace dslaunch::graph
