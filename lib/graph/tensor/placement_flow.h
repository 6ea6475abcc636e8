// Where every value of a lowered graph would lie if some of its parameters were split among the
// ranks of a tensor group: a forward flow of placements, with a rule for each operator
// (operator_rules.cpp, shape_rules.cpp), and what each node must then do otherwise. tensor_search.h
// asks it what may be split, tensor_rewrite.h carries out what it says. No shared state.
//
// The invariant that makes it a proof: integers, booleans and numbers are those of the whole
// graph; a kWhole tensor is the whole graph's; a kShard one is the rank's share of it; and
// gradients lie as their values do, but a kCopied value's gradient is this rank's summand.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/tensor/graph_facts.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::graph {

// Whether ranks share positions, the dimension of forward's tokens that samples are long in.
enum class PositionSplit {
    kNone,
    kBetweenLayers,  // beside weights that are split: what lies between those layers
    kEverywhere,     // weights are whole; attention exchanges positions for heads
};

struct Placement {
    // As parameter: what is split are positions, by no parameter.
    static constexpr int kPositions = -2;

    enum class Kind {
        kWhole,   // the same on every rank, and its gradient too
        kCopied,  // the same on every rank; its gradient is a summand
        kShard,
    };
    Kind kind = Kind::kWhole;
    plan::TensorShard shard;
    int parameter = -1;  // whose rule split it, for messages and for other blocks

    [[nodiscard]] bool is_shard() const { return kind == Kind::kShard; }
    [[nodiscard]] bool is_whole() const { return kind == Kind::kWhole; }
    [[nodiscard]] bool is_copied() const { return kind == Kind::kCopied; }
    [[nodiscard]] bool is_positions() const { return is_shard() && parameter == kPositions; }
    // Lies as OTHER does, whoever made it so.
    [[nodiscard]] bool same_place(const Placement& other) const {
        return kind == other.kind && (kind != Kind::kShard || shard == other.shard);
    }
};

// What has been decided for model parameters: kWhole is "not yet", LOCKED ones stay whole.
// kCopied: a linear layer that every rank computes on its own copy of the input.
struct TensorDecisions {
    std::map<int, Placement> parameters;
    std::set<int> locked;
    std::set<int> gathered;  // their outputs may be gathered where nothing else helps
};

// Why a flow cannot go on at a node.
struct TensorObstacle {
    torch::jit::Node* node = nullptr;
    std::string reason;
    int parameter = -1;        // whose split stands in the way
    bool indivisible = false;  // another number of ranks might do
    // What might help: these parameters split so. Empty: nothing known.
    std::vector<std::pair<int, Placement>> demands;
};

// What a node of the graph must do otherwise, in the order of the nodes.
struct TensorEdit {
    enum class Kind {
        kCopy,          // input: through tensor_copy
        kSummand,       // input is a parameter whose gradient here is a summand
        kShare,         // input: the rank's share of it
        kRepeat,        // input: each of its slices `count` times along the dimension
        kRepeatShare,   // both, repeated first
        kGather,        // input: the whole of it
        kGatherSum,     // the same, and its gradient is a summand
        kScatter,       // input: the rank's share of it, its gradient made whole again
        kExchange,      // input: dimension `count` split instead of the shard's
        kExchangeBack,  // output: the shard's dimension split instead of dimension `count`
        kRowLoss,       // tensor_row_loss and tensor_reduce
        kSum,           // the output is a summand: through tensor_reduce, a bias after it
        kEmbedding,     // tensor_embedding and tensor_reduce
        kCrossEntropy,  // tensor_cross_entropy
        kDropout,       // tensor_dropout
        kExtent,        // the output is a rank's extent: made whole (of a list: entry `count`)
        kShape,         // input is a list of extents: entry `count` is made the rank's
        kDivide,        // input is an integer that becomes `count`, or a list: each by the ranks
    };
    Kind kind = Kind::kCopy;
    torch::jit::Node* node = nullptr;
    size_t input = 0;
    plan::TensorShard shard;
    int64_t count = 0;
    std::optional<plan::TensorShard> keep = std::nullopt;  // of a sum: the share that is kept of it
};

// A product with a weight: [.., in] x weight. WEIGHT_IN is the weight's dimension that is summed
// over, as the node sees it.
struct LinearForm {
    size_t input = 0;
    size_t weight = 1;
    std::optional<size_t> bias;
    int64_t weight_in = 1;
};

class PlacementFlow {
  public:
    // All must outlive it. SIZE: ranks of the group.
    PlacementFlow(const Model& model, const LoweredGraph& lowered, const GraphFacts& facts,
                  int size);

    // Follows DECISIONS from node FIRST to where nothing is split any more and MUST_REACH is
    // passed; returns what stands in the way, if anything. Nothing may be split or copied at FIRST.
    [[nodiscard]] std::optional<TensorObstacle> follow(const TensorDecisions& decisions,
                                                       size_t first, size_t must_reach);

    // For the follow() to come. Throws Error{kInput} where no table is indexed by an argument of
    // forward, or the positions do not divide.
    void split_positions(PositionSplit split);
    [[nodiscard]] PositionSplit position_split() const { return position_split_; }
    [[nodiscard]] int64_t positions() const { return positions_; }
    // Whether VALUE is an argument of forward, moved or cast at most.
    [[nodiscard]] static bool is_argument(const torch::jit::Value* value);

    // Of the last follow().
    [[nodiscard]] const std::vector<TensorEdit>& edits() const { return edits_; }
    [[nodiscard]] size_t end() const { return end_; }  // the first node that was not looked at
    // Nodes on the way before which no value is split or copied.
    [[nodiscard]] const std::vector<size_t>& clean() const { return clean_; }
    [[nodiscard]] Placement placement_of(const torch::jit::Value* value) const;

    [[nodiscard]] const std::vector<torch::jit::Node*>& nodes() const { return nodes_; }
    [[nodiscard]] size_t index_of(const torch::jit::Node* node) const { return index_.at(node); }
    // Its first and last node; nodes().size() for a parameter that nothing reads.
    [[nodiscard]] std::pair<size_t, size_t> uses_of(int parameter) const;
    [[nodiscard]] std::optional<LinearForm> linear_form(const torch::jit::Node& node) const;
    // The model parameter that VALUE is, alone or transposed or cast, and which of its dimensions
    // VALUE's are.
    struct Origin {
        int parameter = -1;
        std::vector<int64_t> dims;
    };
    [[nodiscard]] std::optional<Origin> origin_of(const torch::jit::Value* value) const;

    // For the rules of operators. They return false after an obstacle.
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] const TensorDecisions& decisions() const { return *decisions_; }
    [[nodiscard]] Placement input(const torch::jit::Node& node, size_t index) const {
        return gathered_.count(index) > 0 ? Placement{} : placement_of(node.input(index));
    }
    // Input INDEX, whose positions are split, is read whole by the node at hand.
    void gather_positions(torch::jit::Node& node, size_t index);
    // The node's output is a summand, EDIT makes the sum of it: all of it, or its share of the
    // positions where those are split. BIAS: an input that is added to it.
    bool sum_output(TensorEdit edit, std::optional<size_t> bias);
    // Sizes of a tensor; of an element of a list of tensors.
    [[nodiscard]] const std::vector<int64_t>& sizes(const torch::jit::Value* value,
                                                    size_t element = 0) const;
    [[nodiscard]] bool has_sizes(const torch::jit::Value* value) const;
    [[nodiscard]] size_t list_size(const torch::jit::Value* value) const {
        return facts_.tensors.at(value).size();
    }
    [[nodiscard]] int64_t bytes(const torch::jit::Value* value) const;
    [[nodiscard]] std::optional<int64_t> integer(const torch::jit::Value* value) const;
    [[nodiscard]] bool needs_gradient(const torch::jit::Value* value) const {
        return needs_gradient_.count(value) > 0;
    }
    [[nodiscard]] std::string parameter_name(int parameter) const;
    [[nodiscard]] std::string describe(const torch::jit::Value* value) const;

    void place(const torch::jit::Value* value, Placement placement);
    void place_list(const torch::jit::Value* value, std::vector<Placement> placements);
    [[nodiscard]] std::vector<Placement> list_of(const torch::jit::Value* value) const;
    void edit(TensorEdit edit) { edits_.push_back(std::move(edit)); }
    // The node reads its input INDEX for its own share only: a whole one's gradient is summed.
    void read_for_share(torch::jit::Node& node, size_t index);
    // The rank's share of a whole or copied input INDEX.
    [[nodiscard]] bool share_input(torch::jit::Node& node, size_t index, const Placement& like);
    bool obstruct(torch::jit::Node& node, int parameter, std::string reason);
    bool obstruct_indivisible(torch::jit::Node& node, int parameter, std::string reason);
    // The demand that was just made comes from a number that does not divide.
    void mark_indivisible() { obstacle_->indivisible = true; }
    // Asks for other splits; the reason counts where they do not help.
    bool demand(torch::jit::Node& node, std::vector<std::pair<int, Placement>> demands,
                std::string reason);
    // Asks for PARAMETER's split to have BLOCKS. False always.
    bool demand_blocks(torch::jit::Node& node, int parameter, std::vector<int64_t> blocks,
                       std::string reason);
    // The undecided linear layers whose outputs VALUE is made of, split by their outputs; empty
    // where it is made of anything else.
    [[nodiscard]] std::vector<std::pair<int, Placement>> makers_of(
        const torch::jit::Value* value) const;

  private:
    void collect();
    [[nodiscard]] bool step(torch::jit::Node& node);
    [[nodiscard]] bool apply_rule(torch::jit::Node& node);
    // Of a tensor, or of each of a list; none for what is gathered or whole.
    [[nodiscard]] std::vector<Placement> placements_of_input(const torch::jit::Node& node,
                                                             size_t index) const;
    [[nodiscard]] bool touches(const torch::jit::Node& node) const;
    [[nodiscard]] bool gather_inputs(torch::jit::Node& node);
    [[nodiscard]] bool check_outputs();
    [[nodiscard]] bool may_need_gradient(const torch::jit::Value& value) const;
    [[nodiscard]] size_t last_use(const torch::jit::Value* value) const;

    const Model& model_;
    const LoweredGraph& lowered_;
    const GraphFacts& facts_;
    int size_;
    std::vector<torch::jit::Node*> nodes_;  // top level, without constants
    std::map<const torch::jit::Node*, size_t> index_;
    std::map<const torch::jit::Value*, int> parameter_of_;
    std::set<const torch::jit::Value*> needs_gradient_;
    std::set<const torch::jit::Value*> written_;  // in place, by a later node

    PositionSplit position_split_ = PositionSplit::kNone;
    int64_t positions_ = 0;
    std::set<size_t> gathered_;  // inputs of the node at hand
    const TensorDecisions* decisions_ = nullptr;
    std::unordered_map<const torch::jit::Value*, std::vector<Placement>> placements_;
    std::vector<TensorEdit> edits_;
    std::optional<TensorObstacle> obstacle_;
    size_t alive_until_ = 0;
    size_t end_ = 0;
    std::vector<size_t> clean_;
};

// A rule: whether FLOW may pass NODE, some input of which is not whole. Null: there is none.
using PlacementRule = bool (*)(PlacementFlow& flow, torch::jit::Node& node);
[[nodiscard]] PlacementRule operator_rule(c10::Symbol kind);  // operator_rules.cpp
[[nodiscard]] PlacementRule shape_rule(c10::Symbol kind);     // shape_rules.cpp

}  // namespace dslaunch::graph
