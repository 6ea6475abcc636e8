// The steps of the flow: one node after the other, by its rule or without one. See
// placement_flow.h.

#include <algorithm>
#include <set>

#include "base/text.h"
#include "graph/tensor/placement_flow.h"

namespace dslaunch::graph {

namespace {

// Returns true if NODE writes memory that nothing else reads: what only NODE has of a maker that
// gave new memory.
bool writes_alone(const Node& node) {
    const Value* target = node.input(0);
    const c10::FunctionSchema* maker = target->node()->maybeSchema();
    return target->uses().size() == 1 && maker != nullptr && maker->returns().size() == 1 &&
           maker->returns()[0].alias_info() == nullptr;
}

}  // namespace

bool PlacementFlow::gather_inputs(Node& node) {
    if (!node.blocks().empty() || writes(node)) return false;
    gathered_.clear();
    std::vector<TensorEdit> gathers;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        const std::vector<Placement> placements = placements_of_input(node, i);
        if (std::ranges::all_of(placements, &Placement::is_whole)) continue;
        const Placement& placement = placements.front();
        if (placements.size() > 1 || !placement.is_shard() || !is_tensor(*node.input(i)) ||
            decisions_->gathered.count(placement.parameter) == 0 || origin_of(node.input(i)))
            return false;
        gathers.push_back({TensorEdit::Kind::kGather, &node, i, placement.shard, 0});
    }
    for (TensorEdit& gather : gathers) edit(std::move(gather));
    return !gathers.empty();
}

bool PlacementFlow::step(Node& node) {
    gathered_.clear();
    const size_t edits_before = edits_.size();
    if (apply_rule(node)) return keeps_writes(edits_before);
    if (position_split_ == PositionSplit::kEverywhere) {
        edits_.resize(edits_before);
        gathered_.clear();
        return compute_whole(node) && keeps_writes(edits_before);
    }
    if (position_split_ != PositionSplit::kBetweenLayers) return false;
    // A node that needs all positions gets them gathered.
    edits_.resize(edits_before);
    gathered_.clear();
    for (size_t i = 0; i < node.inputs().size(); ++i)
        if (placement_of(node.input(i)).is_positions() && is_tensor(*node.input(i)))
            gather_positions(node, i);
    if (gathered_.empty()) return false;
    obstacle_.reset();
    bool rest = false;  // true if any other input is not whole
    for (size_t i = 0; i < node.inputs().size(); ++i)
        for (const Placement& placement : placements_of_input(node, i))
            rest = rest || !placement.is_whole();
    return (!rest || apply_rule(node)) && keeps_writes(edits_before);
}

// Returns false, with an obstacle, if an edit since the first EDITS_BEFORE replaces a value by a
// copy while a later node writes its alias: the write would not reach the value.
bool PlacementFlow::keeps_writes(size_t edits_before) {
    using Kind = TensorEdit::Kind;
    static const std::set<Kind> copying{Kind::kCopy,      Kind::kShare,   Kind::kRepeat,
                                        Kind::kScatter,   Kind::kGather,  Kind::kRepeatShare,
                                        Kind::kGatherSum, Kind::kExchange};
    for (size_t e = edits_before; e < edits_.size(); ++e) {
        const TensorEdit& change = edits_[e];
        if (copying.count(change.kind) == 0) continue;
        Node& node = *change.node;
        const c10::FunctionSchema* schema = node.maybeSchema();
        const bool is_alias = schema == nullptr || change.input >= schema->arguments().size() ||
                              schema->arguments()[change.input].alias_info() != nullptr;
        if (!is_alias || written_.count(node.input(change.input)) == 0) continue;
        if (writes(node) && change.input == 0 && writes_alone(node)) continue;
        return obstruct(node, -1, describe(node.input(change.input)) + " is written in place");
    }
    return true;
}

// Lets every rank compute a node without a rule on all positions, if they are split everywhere.
bool PlacementFlow::compute_whole(Node& node) {
    if (!node.blocks().empty()) return false;
    if (!may_write_copies(node)) return false;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        const std::vector<Placement> parts = placements_of_input(node, i);
        if (std::ranges::none_of(parts, &Placement::is_shard)) continue;
        if (is_tensor(*node.input(i))) {
            gather_positions(node, i);
        } else if (!gather_list(node, i)) {
            return false;
        }
    }
    obstacle_.reset();
    place_copied(node);
    return true;
}

// Returns true if NODE may write to its first input what a rank computes of its copies: the input
// is such a copy too, or nobody else reads it.
bool PlacementFlow::may_write_copies(const Node& node) const {
    return !writes(node) || placement_of(node.input(0)).is_copied() ||
           (writes_alone(node) && !needs_gradient(node.input(0)));
}

// Gathers the split parts of the list at input INDEX, if the list is made for NODE alone.
bool PlacementFlow::gather_list(Node& node, size_t index) {
    Node* const list = node.input(index)->node();
    if (list->kind() != prim::ListConstruct || node.input(index)->uses().size() != 1) return false;
    std::vector<Placement> parts = list_of(node.input(index));
    for (size_t i = 0; i < parts.size(); ++i) {
        if (!parts[i].is_shard()) continue;
        const bool sums = needs_gradient(list->input(i));
        edit({sums ? TensorEdit::Kind::kGatherSum : TensorEdit::Kind::kGather, list, i,
              parts[i].shard, 0});
        parts[i] = Placement::copied();
    }
    place_list(node.input(index), std::move(parts));
    return true;
}

// Lets every rank compute NODE on its copies, and sums gradients of its whole inputs.
void PlacementFlow::place_copied(Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i) read_for_share(node, i);
    for (const Value* output : node.outputs()) {
        const auto found = facts_.tensors.find(output);
        if (found != facts_.tensors.end())
            place_list(output, std::vector<Placement>(found->second.size(), Placement::copied()));
    }
}

std::vector<Placement> PlacementFlow::placements_of_input(const Node& node, size_t index) const {
    if (gathered_.count(index) > 0) return {};
    const Value* value = node.input(index);
    return parameter_of_.count(value) > 0 ? std::vector{placement_of(value)} : list_of(value);
}

bool PlacementFlow::apply_rule(Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i)
        if (written_.count(node.input(i)) > 0 && placement_of(node.input(i)).is_whole() &&
            needs_gradient(node.input(i)) && !writes(node))
            return obstruct(node, -1, describe(node.input(i)) + " is written in place");
    if (!node.blocks().empty()) return obstruct(node, -1, "a branch or a loop reads what is split");
    static const PlacementRules rules = [] {
        PlacementRules all;
        add_operator_rules(all);
        add_product_rules(all);
        add_shape_rules(all);
        return all;
    }();
    if (const PlacementRule rule = rules.find(node.kind())) return rule(*this, node);

    // The result of a node that reads only copies is a copy; a split input needs a rule.
    int parameter = -1;
    for (size_t i = 0; i < node.inputs().size(); ++i)
        for (const Placement& placement : placements_of_input(node, i))
            if (placement.is_shard()) parameter = placement.parameter;
    if (parameter != -1)
        return obstruct(node, parameter, fmt::format("there is no rule for it on a split tensor"));
    if (!may_write_copies(node))
        return obstruct(node, -1, "writes in place to what every rank computes alone");
    place_copied(node);
    return true;
}

bool PlacementFlow::check_outputs() {
    for (Value* output : lowered_.graph->outputs()) {
        if (placement_of(output).is_whole()) continue;
        if (placement_of(output).is_copied() && output->node()->outputs().size() == 1) {
            // Every rank computed all of it: each answers for its part of the gradient.
            edit({TensorEdit::Kind::kSum, output->node(), 0, {}, size_});
            placements_.erase(output);
            continue;
        }
        return obstruct(*output->node(), placement_of(output).parameter,
                        "its result leaves the model and is split");
    }
    return true;
}

std::optional<TensorObstacle> PlacementFlow::follow(const TensorDecisions& decisions, size_t first,
                                                    size_t must_reach) {
    decisions_ = &decisions;
    placements_.clear();
    edits_.clear();
    obstacle_.reset();
    clean_.clear();
    alive_until_ = first;
    for (size_t i = first; i < nodes_.size(); ++i) {
        end_ = i;
        if (i == alive_until_ + 1) clean_.push_back(i);
        if (i > must_reach && i > alive_until_) return std::nullopt;
        Node& node = *nodes_[i];
        if (!touches(node)) continue;
        const size_t edits_before = edits_.size();
        if (step(node)) continue;
        if (obstacle_->demands.empty()) {
            edits_.resize(edits_before);
            if (gather_inputs(node)) {
                obstacle_.reset();
                continue;
            }
        }
        return obstacle_;
    }
    end_ = nodes_.size();
    if (!check_outputs()) return obstacle_;
    return std::nullopt;
}

}  // namespace dslaunch::graph
