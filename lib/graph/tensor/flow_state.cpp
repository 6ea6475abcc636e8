#include "graph/tensor/flow_state.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

void FlowState::share_positions(PositionSplit split, int64_t positions) {
    position_split_ = split;
    positions_ = positions;
}

void FlowState::start(const TensorDecisions& decisions, size_t first) {
    decisions_ = &decisions;
    placements_.clear();
    alive_until_ = first;
    edits_.clear();
    begin_node();
    obstacle_.reset();
}

void FlowState::begin_node() {
    node_edits_ = edits_.size();
    gathered_.clear();
}

void FlowState::take_back_edits() {
    edits_.resize(node_edits_);
    gathered_.clear();
}

std::span<const TensorEdit> FlowState::edits_of_node() const {
    return std::span(edits_).subspan(node_edits_);
}

bool FlowState::is_touched(const Node& node) const {
    bool any = false;
    for_each_read(node, [&](const Value* value) {
        if (any) return;
        any = graph_.parameter_of(value) ? !placement_of(value).is_whole()
                                         : placements_.count(value) > 0;
    });
    return any;
}

TensorPlacement FlowState::placement_of(const Value* value) const {
    if (const auto owner = graph_.parameter_of(value)) {
        const auto found = decisions_->parameters.find(*owner);
        return found == decisions_->parameters.end() ? TensorPlacement{} : found->second;
    }
    const auto found = placements_.find(value);
    return found == placements_.end() ? TensorPlacement{} : found->second.front();
}

std::vector<TensorPlacement> FlowState::list_of(const Value* value) const {
    const auto found = placements_.find(value);
    return found == placements_.end() ? std::vector<TensorPlacement>{} : found->second;
}

std::vector<TensorPlacement> FlowState::parts_of_input(const Node& node, size_t index) const {
    if (gathered_.count(index) > 0) return {};
    const Value* value = node.input(index);
    return graph_.parameter_of(value) ? std::vector{placement_of(value)} : list_of(value);
}

void FlowState::place(const Value* value, TensorPlacement placement) {
    place_list(value, {std::move(placement)});
}

void FlowState::place_list(const Value* value, std::vector<TensorPlacement> placements) {
    if (std::ranges::all_of(placements, &TensorPlacement::is_whole)) return;
    placements_[value] = std::move(placements);
    alive_until_ = std::max(alive_until_, graph_.last_use(value));
}

void FlowState::gather_positions(Node& node, size_t index) {
    edit({TensorEdit::Kind::kGather, &node, index, placement_of(node.input(index)).shard, 0});
    gathered_.insert(index);
}

bool FlowState::sum_output(TensorEdit sum, std::optional<size_t> bias) {
    const Value* output = sum.node->output();
    const std::vector<int64_t>& extents = graph_.sizes(output);
    TensorPlacement kept;
    // The output is [.., positions, features], or a batch of such samples flattened to rows.
    const size_t dims = extents.size();
    const bool between = position_split_ == PositionSplit::kBetweenLayers;
    if (between && dims > 2 && extents[dims - 2] == positions_) {
        kept = TensorPlacement::split({static_cast<int64_t>(dims) - 2, {positions_}},
                                      TensorPlacement::kPositions);
    } else if (between && dims == 2 && extents[0] % positions_ == 0) {
        const auto rows = static_cast<size_t>(extents[0] / positions_);
        kept = TensorPlacement::split({0, std::vector<int64_t>(rows, positions_)},
                                      TensorPlacement::kPositions);
    }
    if (kept.is_shard()) {
        if (bias) read_for_share(*sum.node, *bias);
        sum.keep = kept.shard;
        place(output, std::move(kept));
    }
    edit(std::move(sum));
    return true;
}

void FlowState::read_for_share(Node& node, size_t index) {
    Value* value = node.input(index);
    if (!input(node, index).is_whole() || !graph_.needs_gradient(value)) return;
    if (gathered_.count(index) > 0) {
        for (TensorEdit& gather : edits_)
            if (gather.node == &node && gather.input == index &&
                gather.kind == TensorEdit::Kind::kGather)
                gather.kind = TensorEdit::Kind::kGatherSum;
        return;
    }
    const bool is_parameter = graph_.parameter_of(value).has_value();
    edit(
        {is_parameter ? TensorEdit::Kind::kSummand : TensorEdit::Kind::kCopy, &node, index, {}, 0});
}

bool FlowState::share_input(Node& node, size_t index, const TensorPlacement& like) {
    const Value* value = node.input(index);
    const TensorPlacement here = input(node, index);
    DSL_CHECK(!here.is_shard(), "a tensor that is already split cannot be split again");
    if (here.is_whole() && graph_.needs_gradient(value) && like.is_positions()) {
        edit({TensorEdit::Kind::kScatter, &node, index, like.shard, 0});
        return true;
    }
    if (here.is_whole() && graph_.needs_gradient(value)) {
        if (const auto makers = undecided_layers_of(value); !makers.empty())
            return demand(
                node, makers,
                "combines a split tensor with " + graph_.describe(value) + ", which is not split");
        if (!graph_.is_made_of_parameters(value))
            return obstruct(
                node, like.parameter,
                "combines a split tensor with " + graph_.describe(value) + ", which is not split");
        read_for_share(node, index);
    }
    edit({TensorEdit::Kind::kShare, &node, index, like.shard, 0});
    return true;
}

TensorDemands FlowState::undecided_layers_of(const Value* value) const {
    const auto layers = graph_.layers_of(value);
    if (!layers) return {};
    TensorDemands demands;
    for (const TensorPlacement& layer : *layers) {
        if (decisions_->parameters.count(layer.parameter) > 0 ||
            decisions_->locked.count(layer.parameter) > 0)
            return {};
        demands.emplace_back(layer.parameter, layer);
    }
    return demands;
}

bool FlowState::obstruct(Node& node, int parameter, std::string reason) {
    obstacle_ = TensorObstacle{&node, std::move(reason), parameter, false, {}};
    return false;
}

bool FlowState::obstruct_indivisible(Node& node, int parameter, std::string reason) {
    obstruct(node, parameter, std::move(reason));
    obstacle_->is_indivisible = true;
    return false;
}

bool FlowState::demand(Node& node, TensorDemands demands, std::string reason) {
    const int parameter = demands.front().second.parameter;
    obstruct(node, parameter, std::move(reason));
    for (const auto& [wanted, placement] : demands) {
        if (decisions_->locked.count(wanted) == 0) continue;
        obstacle_->reason +=
            fmt::format(", but {} must stay whole on every rank", graph_.parameter_name(wanted));
        return false;
    }
    obstacle_->demands = std::move(demands);
    return false;
}

bool FlowState::demand_blocks(Node& node, int parameter, std::vector<int64_t> blocks,
                              std::string reason) {
    const auto decided = decisions_->parameters.find(parameter);
    if (decided == decisions_->parameters.end() || !decided->second.is_shard() ||
        decided->second.shard.blocks == blocks)
        return obstruct(node, parameter, std::move(reason));
    TensorPlacement placement = decided->second;
    placement.shard.blocks = std::move(blocks);
    return demand(node, {{parameter, placement}}, std::move(reason));
}

}  // namespace dslaunch::graph
