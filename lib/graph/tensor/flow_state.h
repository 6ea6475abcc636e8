// The state of a flow of placements at a node. The rules of operators read and change this state:
// they place the node's outputs, collect the edits that the node needs, or report an obstacle. Data
// path: placement_flow.h -> [here] <-> the rules (placement_rules.h). No shared state; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/tensor/flow_graph.h"
#include "graph/tensor/tensor_edit.h"
#include "graph/tensor/tensor_placement.h"

namespace dslaunch::graph {

// The placements, the edits and the obstacle of one pass over a graph. Unless a comment says
// otherwise, functions that return bool return false after an obstacle.
class FlowState {
  public:
    // GRAPH must outlive this. SIZE is the number of ranks in the group.
    FlowState(const FlowGraph& graph, int size) : graph_(graph), size_(size) {}

    // Returns the facts that do not depend on the pass.
    [[nodiscard]] const FlowGraph& graph() const { return graph_; }
    // Returns the number of ranks.
    [[nodiscard]] int size() const { return size_; }
    // Makes the ranks share the positions of a sample in later passes. POSITIONS: the number of
    // positions.
    void share_positions(PositionSplit split, int64_t positions);
    [[nodiscard]] PositionSplit position_split() const { return position_split_; }
    // Returns the number of positions of a sample; 0 if ranks do not share positions.
    [[nodiscard]] int64_t positions() const { return positions_; }

    // Begins a pass at node FIRST. DECISIONS must outlive the pass.
    void start(const TensorDecisions& decisions, size_t first);
    // Makes the next node the current one: from now on, edits belong to it.
    void begin_node();
    // Takes back the edits of the current node and forgets which inputs were gathered for it.
    void take_back_edits();
    [[nodiscard]] const TensorDecisions& decisions() const { return *decisions_; }
    // Returns the index of the last node that reads a value that is not whole.
    [[nodiscard]] size_t alive_until() const { return alive_until_; }
    // Returns true if NODE reads a value that is not whole.
    [[nodiscard]] bool is_touched(const Node& node) const;

    // Returns the placement of VALUE; if VALUE is a list, the placement of its first tensor.
    [[nodiscard]] TensorPlacement placement_of(const Value* value) const;
    // Returns the placements of the tensors in VALUE; empty if all of them are whole.
    [[nodiscard]] std::vector<TensorPlacement> list_of(const Value* value) const;
    // Returns the placement of input INDEX of the current NODE; whole if it has been gathered.
    [[nodiscard]] TensorPlacement input(const Node& node, size_t index) const {
        return gathered_.count(index) > 0 ? TensorPlacement{} : placement_of(node.input(index));
    }
    // Returns the placement of the tensor at input INDEX of NODE, or of each tensor if the input is
    // a list. Returns an empty list if the input is gathered or whole.
    [[nodiscard]] std::vector<TensorPlacement> parts_of_input(const Node& node, size_t index) const;
    // Set the placement of VALUE: a tensor, a list of tensors, or a value that an edit makes whole.
    void place(const Value* value, TensorPlacement placement);
    void place_list(const Value* value, std::vector<TensorPlacement> placements);
    void make_whole(const Value* value) { placements_.erase(value); }

    // Returns the edits of this pass.
    [[nodiscard]] const std::vector<TensorEdit>& edits() const { return edits_; }
    // Returns the edits that the current node needs so far.
    [[nodiscard]] std::span<const TensorEdit> edits_of_node() const;
    void edit(TensorEdit edit) { edits_.push_back(std::move(edit)); }
    // Gathers input INDEX of NODE, which is the current node. The input is split by positions.
    void gather_positions(Node& node, size_t index);
    // Returns true if an input was gathered for the current node.
    [[nodiscard]] bool has_gathered() const { return !gathered_.empty(); }
    // Adds the edit SUM, which sums the output of SUM.node over the ranks. If the run splits
    // positions between the ranks, this rank keeps only its positions of the sum. BIAS: the index
    // of the node's input that is added to the sum. Always returns true.
    bool sum_output(TensorEdit sum, std::optional<size_t> bias);
    // Declares that the node reads input INDEX only to compute this rank's share. If the input is
    // whole, its gradient is then summed over the ranks.
    void read_for_share(Node& node, size_t index);
    // Replaces input INDEX, which is whole or copied, by the rank's share of it. LIKE: the
    // placement of the share.
    [[nodiscard]] bool share_input(Node& node, size_t index, const TensorPlacement& like);

    // Returns the obstacle of the current node; nothing if there is none.
    [[nodiscard]] const std::optional<TensorObstacle>& obstacle() const { return obstacle_; }
    void clear_obstacle() { obstacle_.reset(); }
    // Report an obstacle: NODE cannot compute with the split of PARAMETER (-1: not known).
    // obstruct() reports that NODE can never do so. obstruct_indivisible() reports that the number
    // of ranks is the cause. Both always return false.
    bool obstruct(Node& node, int parameter, std::string reason);
    bool obstruct_indivisible(Node& node, int parameter, std::string reason);
    // Records that the current obstacle exists because a size is not divisible by the number of
    // ranks.
    void mark_indivisible() { obstacle_->is_indivisible = true; }
    // Asks for the splits DEMANDS. REASON is reported if they do not help. Always returns false.
    bool demand(Node& node, TensorDemands demands, std::string reason);
    // Asks for BLOCKS as the split of PARAMETER. Always returns false.
    bool demand_blocks(Node& node, int parameter, std::vector<int64_t> blocks, std::string reason);

  private:
    // Returns splits of the layers that compute VALUE. With these splits, a rank has only a share
    // of VALUE. Returns an empty list if the split of one of these layers is already decided.
    [[nodiscard]] TensorDemands undecided_layers_of(const Value* value) const;

    const FlowGraph& graph_;
    int size_;
    PositionSplit position_split_ = PositionSplit::kNone;
    int64_t positions_ = 0;

    const TensorDecisions* decisions_ = nullptr;
    std::unordered_map<const Value*, std::vector<TensorPlacement>> placements_;  // not whole
    size_t alive_until_ = 0;
    std::vector<TensorEdit> edits_;
    size_t node_edits_ = 0;      // the first edit of the current node
    std::set<size_t> gathered_;  // inputs of the current node
    std::optional<TensorObstacle> obstacle_;
};

}  // namespace dslaunch::graph
