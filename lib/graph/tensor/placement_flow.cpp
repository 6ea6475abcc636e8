#include "graph/tensor/placement_flow.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/tensor/placement_rules.h"

namespace dslaunch::graph {

namespace {

// Returns the two numbers of positions closest to POSITIONS that RANKS can share evenly, such as
// "12 or 14".
std::string counts_that_divide(int64_t positions, int64_t ranks) {
    const int64_t below = positions / ranks * ranks;
    return below == 0 ? fmt::format("{}", ranks) : fmt::format("{} or {}", below, below + ranks);
}

// Returns the numbers of ranks near RANKS that can share POSITIONS evenly, such as "3 or 5 ranks".
std::string ranks_that_divide(int64_t positions, int64_t ranks) {
    std::vector<std::string> numbers;
    for (int64_t number = 2; number <= std::min(positions, 2 * ranks); ++number)
        if (positions % number == 0) numbers.push_back(std::to_string(number));
    return numbers.empty() ? "1 rank" : join(numbers, " or ") + " ranks";
}

// Returns true if no other node reads the memory that NODE writes: only NODE uses its first input,
// and the node that makes this input allocates its memory.
bool writes_alone(const Node& node) {
    const Value* target = node.input(0);
    const c10::FunctionSchema* maker = target->node()->maybeSchema();
    return target->uses().size() == 1 && maker != nullptr && maker->returns().size() == 1 &&
           maker->returns()[0].alias_info() == nullptr;
}

}  // namespace

void PlacementFlow::split_positions(PositionSplit split) {
    const Node* const table = graph_.table_of_tokens();
    if (table == nullptr)
        fail(ExitCode::kInput,
             "sequence parallelism of {} ranks: no embedding table is indexed by an argument of "
             "forward, so the positions of a sample cannot be determined",
             size());
    const int64_t positions = graph_.sizes(table->input(1)).back();
    if (positions % size() != 0)
        fail(ExitCode::kInput,
             "sequence parallelism of {} ranks: a sample has {} positions ({}), and they cannot be "
             "divided evenly among them. Use samples of {} positions (for tokens: "
             "dslaunch.data.context), or {} (dslaunch.sequence.size)",
             size(), positions, describe_node(*table), counts_that_divide(positions, size()),
             ranks_that_divide(positions, size()));
    state_.share_positions(split, positions);
}

bool PlacementFlow::step(Node& node) {
    state_.begin_node();
    if (apply_rule(node)) return keeps_writes();
    if (state_.position_split() == PositionSplit::kNone) return false;
    state_.take_back_edits();
    const bool is_everywhere = state_.position_split() == PositionSplit::kEverywhere;
    return (is_everywhere ? compute_whole(node) : step_on_all_positions(node)) && keeps_writes();
}

// Gathers the positions that NODE reads, and applies NODE's rule to the other inputs.
bool PlacementFlow::step_on_all_positions(Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i)
        if (state_.placement_of(node.input(i)).is_positions() && is_tensor(*node.input(i)))
            state_.gather_positions(node, i);
    if (!state_.has_gathered()) return false;
    state_.clear_obstacle();
    bool is_rest_whole = true;  // false if any other input is not whole
    for (size_t i = 0; i < node.inputs().size(); ++i)
        for (const TensorPlacement& placement : state_.parts_of_input(node, i))
            is_rest_whole = is_rest_whole && placement.is_whole();
    return is_rest_whole || apply_rule(node);
}

// Returns false and records an obstacle if an edit of the current node replaces a value by a copy,
// and a later node writes to an alias of the value. The write would change only the value or only
// the copy.
bool PlacementFlow::keeps_writes() {
    using Kind = TensorEdit::Kind;
    static const std::set<Kind> copying{Kind::kCopy,      Kind::kShare,   Kind::kRepeat,
                                        Kind::kScatter,   Kind::kGather,  Kind::kRepeatShare,
                                        Kind::kGatherSum, Kind::kExchange};
    for (const TensorEdit& change : state_.edits_of_node()) {
        if (copying.count(change.kind) == 0) continue;
        Node& node = *change.node;
        const c10::FunctionSchema* schema = node.maybeSchema();
        const bool is_alias = schema == nullptr || change.input >= schema->arguments().size() ||
                              schema->arguments()[change.input].alias_info() != nullptr;
        if (!is_alias || !graph_.is_written(node.input(change.input))) continue;
        if (writes(node) && change.input == 0 && writes_alone(node)) continue;
        return state_.obstruct(node, -1,
                               graph_.describe(node.input(change.input)) + " is written in place");
    }
    return true;
}

// Lets every rank compute NODE on all positions. Used if positions are split everywhere and NODE
// has no rule.
bool PlacementFlow::compute_whole(Node& node) {
    if (!node.blocks().empty()) return false;
    if (!may_write_copies(node)) return false;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        const std::vector<TensorPlacement> parts = state_.parts_of_input(node, i);
        if (std::ranges::none_of(parts, &TensorPlacement::is_shard)) continue;
        if (is_tensor(*node.input(i))) {
            state_.gather_positions(node, i);
        } else if (!gather_list(node, i)) {
            return false;
        }
    }
    state_.clear_obstacle();
    place_copied(node);
    return true;
}

// Returns true if NODE writes nothing, or if every rank may write its own result to NODE's first
// input: this input is a copy, or no other node reads it.
bool PlacementFlow::may_write_copies(const Node& node) const {
    return !writes(node) || state_.placement_of(node.input(0)).is_copied() ||
           (writes_alone(node) && !graph_.needs_gradient(node.input(0)));
}

// Gathers the split parts of the list at input INDEX, if only NODE uses the list.
bool PlacementFlow::gather_list(Node& node, size_t index) {
    Node* const list = node.input(index)->node();
    if (list->kind() != prim::ListConstruct || node.input(index)->uses().size() != 1) return false;
    std::vector<TensorPlacement> parts = state_.list_of(node.input(index));
    for (size_t i = 0; i < parts.size(); ++i) {
        if (!parts[i].is_shard()) continue;
        const bool sums = graph_.needs_gradient(list->input(i));
        state_.edit({sums ? TensorEdit::Kind::kGatherSum : TensorEdit::Kind::kGather, list, i,
                     parts[i].shard, 0});
        parts[i] = TensorPlacement::copied();
    }
    state_.place_list(node.input(index), std::move(parts));
    return true;
}

// Lets every rank compute NODE on its own copies of the inputs. If an input is whole, the ranks'
// gradients of the input are added up.
void PlacementFlow::place_copied(Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i) state_.read_for_share(node, i);
    for (const Value* output : node.outputs())
        state_.place_list(output, std::vector(graph_.list_size(output), TensorPlacement::copied()));
}

bool PlacementFlow::apply_rule(Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i)
        if (graph_.is_written(node.input(i)) && state_.placement_of(node.input(i)).is_whole() &&
            graph_.needs_gradient(node.input(i)) && !writes(node))
            return state_.obstruct(node, -1,
                                   graph_.describe(node.input(i)) + " is written in place");
    if (!node.blocks().empty())
        return state_.obstruct(node, -1,
                               "branches and loops are not supported where tensors are split");
    static const PlacementRules rules = [] {
        PlacementRules all;
        add_operator_rules(all);
        add_product_rules(all);
        add_attention_rules(all);
        add_shape_rules(all);
        return all;
    }();
    if (const PlacementRule rule = rules.find(node.kind())) return rule(state_, node);

    // If NODE reads only copies, its result is a copy. If an input is split, NODE needs a rule.
    int parameter = -1;
    for (size_t i = 0; i < node.inputs().size(); ++i)
        for (const TensorPlacement& placement : state_.parts_of_input(node, i))
            if (placement.is_shard()) parameter = placement.parameter;
    if (parameter != -1)
        return state_.obstruct(node, parameter, "it is not supported on split tensors");
    if (!may_write_copies(node))
        return state_.obstruct(
            node, -1, "it writes in place to a tensor that every rank computes as a whole");
    place_copied(node);
    return true;
}

// Gathers the split inputs of NODE. Returns false if no input is split, or if the decisions do not
// allow gathering one of them.
bool PlacementFlow::gather_inputs(Node& node) {
    if (!node.blocks().empty() || writes(node)) return false;
    std::vector<TensorEdit> gathers;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        const std::vector<TensorPlacement> placements = state_.parts_of_input(node, i);
        if (std::ranges::all_of(placements, &TensorPlacement::is_whole)) continue;
        const TensorPlacement& placement = placements.front();
        if (placements.size() > 1 || !placement.is_shard() || !is_tensor(*node.input(i)) ||
            state_.decisions().gathered.count(placement.parameter) == 0 ||
            graph_.origin_of(node.input(i)))
            return false;
        gathers.push_back({TensorEdit::Kind::kGather, &node, i, placement.shard, 0});
    }
    for (TensorEdit& gather : gathers) state_.edit(std::move(gather));
    return !gathers.empty();
}

bool PlacementFlow::check_outputs() {
    for (Value* output : graph_.outputs()) {
        if (state_.placement_of(output).is_whole()) continue;
        if (state_.placement_of(output).is_copied() && output->node()->outputs().size() == 1) {
            // Every rank has computed the whole output. The output becomes the mean over the ranks,
            // so that each rank gets an equal part of the gradient.
            state_.edit({TensorEdit::Kind::kSum, output->node(), 0, {}, size()});
            state_.make_whole(output);
            continue;
        }
        return state_.obstruct(*output->node(), state_.placement_of(output).parameter,
                               "its result is an output of the model, but is split");
    }
    return true;
}

std::optional<TensorObstacle> PlacementFlow::follow(const TensorDecisions& decisions, size_t first,
                                                    size_t must_reach) {
    state_.start(decisions, first);
    clean_.clear();
    for (size_t i = first; i < graph_.nodes().size(); ++i) {
        end_ = i;
        if (i == state_.alive_until() + 1) clean_.push_back(i);
        if (i > must_reach && i > state_.alive_until()) return std::nullopt;
        Node& node = *graph_.nodes()[i];
        if (!state_.is_touched(node) || step(node)) continue;
        if (!state_.obstacle()->demands.empty()) return state_.obstacle();
        state_.take_back_edits();
        if (!gather_inputs(node)) return state_.obstacle();
        state_.clear_obstacle();
    }
    end_ = graph_.nodes().size();
    if (!check_outputs()) return state_.obstacle();
    return std::nullopt;
}

}  // namespace dslaunch::graph
