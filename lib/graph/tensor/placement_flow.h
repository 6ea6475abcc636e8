// Splits some parameters of a lowered graph among the ranks of a tensor group, and computes the
// resulting placement of every value. Placements flow forward through the graph, with a rule for
// each operator (placement_rules.h). The flow also collects the edits that the nodes then need.
// tensor_search.h uses it to find the parameters that may be split; tensor_rewrite.h carries out
// its edits. No shared state.
//
// The flow is a proof because of this invariant: an integer, boolean, number or kWhole tensor is
// equal to the same value of the original graph; a kShard tensor is the rank's share of the
// original graph's tensor. Gradients are placed like their values, except that the gradient of a
// kCopied value is this rank's summand.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "graph/tensor/flow_graph.h"
#include "graph/tensor/flow_state.h"
#include "graph/tensor/graph_facts.h"

namespace dslaunch::graph {

// The placements of a graph's values on the ranks, found node by node from decisions about
// parameters.
class PlacementFlow {
  public:
    // MODEL, LOWERED and FACTS must outlive this. SIZE is the number of ranks in the group.
    PlacementFlow(const Model& model, const LoweredGraph& lowered, const GraphFacts& facts,
                  int size)
        : graph_(model, lowered, facts), state_(graph_, size) {}
    PlacementFlow(const PlacementFlow&) = delete;
    PlacementFlow& operator=(const PlacementFlow&) = delete;

    // Returns the facts that do not depend on decisions.
    [[nodiscard]] const FlowGraph& graph() const { return graph_; }
    // Returns the number of ranks.
    [[nodiscard]] int size() const { return state_.size(); }
    // Sets the split of positions for later calls of follow(). Throws Error{kInput} if no argument
    // of forward indexes a table, or if the positions do not divide evenly among the ranks.
    void split_positions(PositionSplit split);

    // Places the values of the nodes from FIRST on, according to DECISIONS. Stops when it has
    // visited MUST_REACH and nothing is split any more. Returns the obstacle, if there is one.
    // REQUIRES: nothing is split or copied at FIRST.
    [[nodiscard]] std::optional<TensorObstacle> follow(const TensorDecisions& decisions,
                                                       size_t first, size_t must_reach);
    // Return the edits of the last follow(), and the placements at its end.
    [[nodiscard]] const std::vector<TensorEdit>& edits() const { return state_.edits(); }
    [[nodiscard]] TensorPlacement placement_of(const Value* value) const {
        return state_.placement_of(value);
    }
    // Returns the first node that the last follow() did not visit.
    [[nodiscard]] size_t end() const { return end_; }
    // Returns the nodes that the last follow() visited while no split or copied value was alive.
    [[nodiscard]] const std::vector<size_t>& clean() const { return clean_; }

  private:
    // Functions that return bool return false after an obstacle.
    [[nodiscard]] bool step(Node& node);
    [[nodiscard]] bool step_on_all_positions(Node& node);
    [[nodiscard]] bool apply_rule(Node& node);
    [[nodiscard]] bool compute_whole(Node& node);
    [[nodiscard]] bool may_write_copies(const Node& node) const;
    [[nodiscard]] bool gather_list(Node& node, size_t index);
    [[nodiscard]] bool gather_inputs(Node& node);
    [[nodiscard]] bool keeps_writes();
    [[nodiscard]] bool check_outputs();
    void place_copied(Node& node);

    FlowGraph graph_;
    FlowState state_;
    size_t end_ = 0;
    std::vector<size_t> clean_;
};

}  // namespace dslaunch::graph
