// The placement of every value of a lowered graph if some of its parameters were split among the
// ranks of a tensor group: a forward flow of placements, with a rule for each operator
// (operator_rules.cpp, shape_rules.cpp), and the edits that nodes then need. tensor_search.cpp
// finds with it the parameters that may be split, tensor_rewrite.h carries out its edits. No shared
// state.
//
// The invariant that makes the flow a proof: integers, booleans and numbers are the whole graph's;
// a kWhole tensor is the whole graph's; a kShard tensor is the rank's share of it; and
// gradients lie as their values do, but a kCopied value's gradient is this rank's summand.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/tensor/graph_facts.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::graph {

// The parts of a graph in which ranks share positions, the dimension of forward's tokens along a
// sample.
enum class PositionSplit {
    kNone,
    kBetweenLayers,  // weights are split, and positions between their layers
    kEverywhere,     // weights are whole; attention exchanges positions for heads
};

struct Placement {
    // The value of `parameter` for a tensor that is split by positions, not by a parameter.
    static constexpr int kPositions = -2;

    enum class Kind {
        kWhole,   // value and gradient are the same on every rank
        kCopied,  // the value is the same on every rank; its gradient is a summand
        kShard,
    };
    Kind kind = Kind::kWhole;
    plan::TensorShard shard;
    int parameter = -1;  // the parameter whose rule split it, for messages and for other blocks

    [[nodiscard]] static Placement copied() {
        Placement made;
        made.kind = Kind::kCopied;
        return made;
    }
    [[nodiscard]] static Placement split(plan::TensorShard shard, int parameter) {
        return {Kind::kShard, std::move(shard), parameter};
    }
    [[nodiscard]] bool is_shard() const { return kind == Kind::kShard; }
    [[nodiscard]] bool is_whole() const { return kind == Kind::kWhole; }
    [[nodiscard]] bool is_copied() const { return kind == Kind::kCopied; }
    [[nodiscard]] bool is_positions() const { return is_shard() && parameter == kPositions; }
    // Returns true if this lies as OTHER does, whichever parameter split it.
    [[nodiscard]] bool same_place(const Placement& other) const {
        return kind == other.kind && (kind != Kind::kShard || shard == other.shard);
    }
};

// The decisions for model parameters. kWhole is not yet decided, LOCKED ones stay whole. kCopied is
// a linear layer that every rank computes on its own copy of the input.
struct TensorDecisions {
    std::map<int, Placement> parameters;
    std::set<int> locked;
    std::set<int> gathered;  // layers whose outputs may be gathered if nothing else helps
};

// The reason why a flow cannot go on at a node.
struct TensorObstacle {
    Node* node = nullptr;
    std::string reason;
    int parameter = -1;        // the parameter whose split is in the way
    bool indivisible = false;  // true: another number of ranks might be possible
    // Splits of parameters that might help. Empty: none are known.
    std::vector<std::pair<int, Placement>> demands;
};

// A change to a node of the graph. Edits are in the order of the nodes.
struct TensorEdit {
    enum class Kind {
        kCopy,          // input: through tensor_copy
        kSummand,       // input is a parameter whose gradient here is a summand
        kShare,         // input: the rank's share of it
        kRepeat,        // input: each of its slices `count` times along the dimension
        kRepeatShare,   // input: repeated, then the rank's share of it
        kGather,        // input: the whole of it
        kGatherSum,     // input: the whole of it, and its gradient is a summand
        kScatter,       // input: the rank's share of it, its gradient made whole again
        kExchange,      // input: dimension `count` split instead of the shard's
        kExchangeBack,  // output: the shard's dimension split instead of dimension `count`
        kRowLoss,       // tensor_row_loss and tensor_reduce
        kSum,           // the output is a summand: through tensor_reduce, a bias after it; divided
                        // by `count`, if that is not 0
        kEmbedding,     // tensor_embedding and tensor_reduce
        kCrossEntropy,  // tensor_cross_entropy
        kDropout,       // tensor_dropout
        kAttention,     // tensor_attention
        kRing,          // tensor_ring_attention
        kExtent,        // the output is a rank's extent: made whole (of a list: entry `count`)
        kShape,         // input is a list of extents: entry `count` is made the rank's
        kDivide,        // input is an integer that becomes `count`, or a list: each by the ranks
    };
    Kind kind = Kind::kCopy;
    Node* node = nullptr;
    size_t input = 0;
    plan::TensorShard shard;
    int64_t count = 0;
    std::optional<plan::TensorShard> keep = std::nullopt;  // for a sum: the share of it that is
                                                           // kept
};

// A product with a weight: [.., in] x weight. In the weight as the node reads it, WEIGHT_IN is the
// dimension that is summed over, WEIGHT_OUT the dimension of the outputs.
struct LinearForm {
    size_t input = 0;
    size_t weight = 1;
    std::optional<size_t> bias;
    int64_t weight_in = 1;
    int64_t weight_out = 0;
};

class PlacementFlow {
  public:
    // MODEL, LOWERED and FACTS must outlive this. SIZE is the number of ranks in the group.
    PlacementFlow(const Model& model, const LoweredGraph& lowered, const GraphFacts& facts,
                  int size);

    // Follows DECISIONS from node FIRST to where nothing is split any more and MUST_REACH is
    // passed; returns the obstacle, if any. Nothing may be split or copied at FIRST.
    [[nodiscard]] std::optional<TensorObstacle> follow(const TensorDecisions& decisions,
                                                       size_t first, size_t must_reach);

    // Sets the split of positions for later calls of follow(). Throws Error{kInput} if no argument
    // of forward indexes a table, or if the positions do not divide.
    void split_positions(PositionSplit split);
    [[nodiscard]] PositionSplit position_split() const { return position_split_; }
    [[nodiscard]] int64_t positions() const { return positions_; }
    // Returns true if VALUE is an argument of forward, at most moved or cast.
    [[nodiscard]] static bool is_argument(const Value* value);

    // Returns the edits of the last follow().
    [[nodiscard]] const std::vector<TensorEdit>& edits() const { return edits_; }
    [[nodiscard]] size_t end() const { return end_; }  // the first node not followed
    // Returns the nodes so far that have no split or copied value before them.
    [[nodiscard]] const std::vector<size_t>& clean() const { return clean_; }
    [[nodiscard]] Placement placement_of(const Value* value) const;

    [[nodiscard]] const std::vector<Node*>& nodes() const { return nodes_; }
    [[nodiscard]] size_t index_of(const Node* node) const { return index_.at(node); }
    // Returns the first and the last node that read PARAMETER; nodes().size() if none does.
    [[nodiscard]] std::pair<size_t, size_t> uses_of(int parameter) const;
    // Returns true for the product of each expert with its own rows.
    [[nodiscard]] static bool is_grouped_product(const Node& node);
    [[nodiscard]] std::optional<LinearForm> linear_form(const Node& node) const;
    // The model parameter that VALUE is, alone or transposed or cast, and the parameter's dimension
    // for each dimension of VALUE.
    struct Origin {
        int parameter = -1;
        std::vector<int64_t> dims;
    };
    [[nodiscard]] std::optional<Origin> origin_of(const Value* value) const;

    // The functions from here on are for the rules of operators. Functions of type bool return
    // false after an obstacle.
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] const TensorDecisions& decisions() const { return *decisions_; }
    [[nodiscard]] Placement input(const Node& node, size_t index) const {
        return gathered_.count(index) > 0 ? Placement{} : placement_of(node.input(index));
    }
    // Gathers input INDEX, whose positions are split, for the current NODE.
    void gather_positions(Node& node, size_t index);
    // Lets SUM make the sum of the node's output, a summand: all of it, or this rank's share of the
    // positions if those are split. BIAS is an input that is added to the sum.
    bool sum_output(TensorEdit sum, std::optional<size_t> bias);
    // Returns the sizes of a tensor, or of ELEMENT of a list of tensors.
    [[nodiscard]] const std::vector<int64_t>& sizes(const Value* value, size_t element = 0) const;
    [[nodiscard]] bool has_sizes(const Value* value) const;
    [[nodiscard]] size_t list_size(const Value* value) const {
        return facts_.tensors.at(value).size();
    }
    [[nodiscard]] int64_t bytes(const Value* value) const;
    [[nodiscard]] std::optional<int64_t> integer(const Value* value) const;
    [[nodiscard]] bool needs_gradient(const Value* value) const {
        return needs_gradient_.count(value) > 0;
    }
    [[nodiscard]] std::string parameter_name(int parameter) const;
    [[nodiscard]] std::string describe(const Value* value) const;

    void place(const Value* value, Placement placement);
    void place_list(const Value* value, std::vector<Placement> placements);
    [[nodiscard]] std::vector<Placement> list_of(const Value* value) const;
    void edit(TensorEdit edit) { edits_.push_back(std::move(edit)); }
    // Lets the node read input INDEX for its own share only, so the gradient of a whole input is
    // summed.
    void read_for_share(Node& node, size_t index);
    // Returns true if VALUE needs a gradient and no layer makes it, only parameters and numbers do.
    [[nodiscard]] bool made_of_parameters(const Value* value) const;
    // Takes the rank's share of a whole or copied input INDEX.
    [[nodiscard]] bool share_input(Node& node, size_t index, const Placement& like);
    bool obstruct(Node& node, int parameter, std::string reason);
    bool obstruct_indivisible(Node& node, int parameter, std::string reason);
    // Marks that the demand that was just made comes from a number that does not divide.
    void mark_indivisible() { obstacle_->indivisible = true; }
    // Asks for other splits; REASON is reported if they do not help.
    bool demand(Node& node, std::vector<std::pair<int, Placement>> demands, std::string reason);
    // Asks for PARAMETER's split to have BLOCKS. Always returns false.
    bool demand_blocks(Node& node, int parameter, std::vector<int64_t> blocks, std::string reason);
    // Returns the undecided linear layers whose outputs VALUE is made of, as splits by their
    // outputs; empty if VALUE is made of anything else.
    [[nodiscard]] std::vector<std::pair<int, Placement>> makers_of(const Value* value) const;

  private:
    // Calls VISIT with each node that makes VALUE of parameters with gradients, from the last on.
    // It returns true to go on to what the node reads. False: VISIT has set STOPPED, or VALUE is
    // made of more nodes than layers and norms need.
    template <typename Visit>
    [[nodiscard]] bool visit_makers(const Value* value, const Visit& visit) const;
    void collect();
    [[nodiscard]] bool step(Node& node);
    [[nodiscard]] bool apply_rule(Node& node);
    [[nodiscard]] bool compute_whole(Node& node);
    [[nodiscard]] bool may_write_copies(const Node& node) const;
    [[nodiscard]] bool gather_list(Node& node, size_t index);
    [[nodiscard]] bool keeps_writes(size_t edits_before);
    void place_copied(Node& node);
    // Returns the placement of a tensor, or of each tensor of a list; empty if the input is
    // gathered or whole.
    [[nodiscard]] std::vector<Placement> placements_of_input(const Node& node, size_t index) const;
    [[nodiscard]] bool touches(const Node& node) const;
    [[nodiscard]] bool gather_inputs(Node& node);
    [[nodiscard]] bool check_outputs();
    [[nodiscard]] bool may_need_gradient(const Value& value) const;
    [[nodiscard]] size_t last_use(const Value* value) const;

    const Model& model_;
    const LoweredGraph& lowered_;
    const GraphFacts& facts_;
    int size_;
    std::vector<Node*> nodes_;  // top level, without constants
    std::map<const Node*, size_t> index_;
    std::map<const Value*, int> parameter_of_;
    std::set<const Value*> needs_gradient_;
    std::set<const Value*> written_;  // values that a later node writes in place
                                      // (find_written_values)

    PositionSplit position_split_ = PositionSplit::kNone;
    int64_t positions_ = 0;
    std::set<size_t> gathered_;  // inputs of the current node
    const TensorDecisions* decisions_ = nullptr;
    std::unordered_map<const Value*, std::vector<Placement>> placements_;
    std::vector<TensorEdit> edits_;
    std::optional<TensorObstacle> obstacle_;
    size_t alive_until_ = 0;
    size_t end_ = 0;
    std::vector<size_t> clean_;
};

// Places NODE's outputs and returns true if FLOW may pass NODE. Some input of NODE is not whole.
using PlacementRule = bool (*)(PlacementFlow& flow, Node& node);

class PlacementRules {
  public:
    // NAMES are qualified, as aten::view.
    void add(std::initializer_list<const char*> names, PlacementRule rule) {
        for (const char* name : names) rules_[Symbol::fromQualString(name)] = rule;
    }
    // Returns null if there is no rule.
    [[nodiscard]] PlacementRule find(Symbol kind) const {
        const auto found = rules_.find(kind);
        return found == rules_.end() ? nullptr : found->second;
    }

  private:
    std::unordered_map<Symbol, PlacementRule> rules_;
};
void add_operator_rules(PlacementRules& rules);  // operator_rules.cpp
void add_product_rules(PlacementRules& rules);   // product_rules.cpp
void add_shape_rules(PlacementRules& rules);     // shape_rules.cpp

}  // namespace dslaunch::graph
