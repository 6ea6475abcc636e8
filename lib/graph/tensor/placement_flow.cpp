#include "graph/tensor/placement_flow.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/writes/written_values.h"

namespace dslaunch::graph {

namespace {

// Calls USE with every value that NODE or a node in its blocks reads.
void visit_reads(const Node& node, const std::function<void(const Value*)>& use) {
    for_each_node_of(node, [&](const Node& inner) {
        for (const Value* input : inner.inputs()) use(input);
        for (const Block* block : inner.blocks())
            for (const Value* output : block->outputs()) use(output);
    });
}

// Operators that give the values of their first tensor again, in another dtype or order.
bool passes_on(const Node& node) {
    return is_one_of(node,
                     {"aten::t", "aten::transpose", "aten::to", "aten::numpy_T", "aten::contiguous",
                      "aten::clone", "aten::permute", "aten::_autocast_to_full_precision",
                      "aten::_autocast_to_reduced_precision", "dslaunch::match_dtype"});
}

}  // namespace

PlacementFlow::PlacementFlow(const Model& model, const LoweredGraph& lowered,
                             const GraphFacts& facts, int size)
    : model_(model), lowered_(lowered), facts_(facts), size_(size) {
    collect();
}

void PlacementFlow::collect() {
    const Graph& graph = *lowered_.graph;
    for (size_t i = 0; i < lowered_.parameters.size(); ++i) {
        const Value* input = graph.inputs()[lowered_.first_parameter() + i];
        const int parameter = lowered_.parameters[i];
        parameter_of_[input] = parameter;
        if (model_.parameters()[parameter].tensor.requires_grad()) needs_gradient_.insert(input);
    }
    for (Node* node : lowered_.graph->nodes()) {
        if (node->kind() == prim::Constant) continue;
        index_[node] = nodes_.size();
        nodes_.push_back(node);
        bool needs = false;
        visit_reads(*node, [&](const Value* value) { needs = needs || needs_gradient(value); });
        if (!needs || node->kind() == aten::detach) continue;
        for (const Value* output : node->outputs())
            if (may_need_gradient(*output)) needs_gradient_.insert(output);
    }
    written_ = find_written_values(graph);
}

bool PlacementFlow::may_need_gradient(const Value& value) const {
    const auto found = facts_.tensors.find(&value);
    if (found != facts_.tensors.end() && !found->second.empty())
        return at::isFloatingType(found->second.front().dtype) ||
               at::isComplexType(found->second.front().dtype);
    // Integers and their lists have facts, or hold no tensor.
    return is_tensor(value) || value.type()->kind() == c10::TypeKind::TupleType ||
           value.type()->kind() == c10::TypeKind::OptionalType ||
           value.type()->kind() == c10::TypeKind::DictType;
}

size_t PlacementFlow::last_use(const Value* value) const {
    size_t last = 0;
    for (const auto& use : value->uses()) {
        if (use.user == lowered_.graph->return_node()) return nodes_.size();
        last = std::max(last, index_.at(top_of(use.user)));
    }
    return last;
}

std::pair<size_t, size_t> PlacementFlow::uses_of(int parameter) const {
    std::pair<size_t, size_t> range{nodes_.size(), 0};
    for (const auto& [value, owner] : parameter_of_) {
        if (owner != parameter) continue;
        for (const auto& use : value->uses()) {
            if (use.user == lowered_.graph->return_node()) continue;
            range.first = std::min(range.first, index_.at(top_of(use.user)));
        }
        range.second = std::max(range.second, last_use(value));
    }
    return range;
}

Placement PlacementFlow::placement_of(const Value* value) const {
    if (const auto owner = parameter_of_.find(value); owner != parameter_of_.end()) {
        const auto found = decisions_->parameters.find(owner->second);
        return found == decisions_->parameters.end() ? Placement{} : found->second;
    }
    const auto found = placements_.find(value);
    return found == placements_.end() ? Placement{} : found->second.front();
}

std::vector<Placement> PlacementFlow::list_of(const Value* value) const {
    const auto found = placements_.find(value);
    return found == placements_.end() ? std::vector<Placement>{} : found->second;
}

void PlacementFlow::place(const Value* value, Placement placement) {
    place_list(value, {std::move(placement)});
}

void PlacementFlow::place_list(const Value* value, std::vector<Placement> placements) {
    const bool whole = std::all_of(placements.begin(), placements.end(),
                                   [](const Placement& p) { return p.is_whole(); });
    if (whole) return;
    placements_[value] = std::move(placements);
    alive_until_ = std::max(alive_until_, last_use(value));
}

bool PlacementFlow::has_sizes(const Value* value) const {
    const auto found = facts_.tensors.find(value);
    return found != facts_.tensors.end() && !found->second.empty();
}

const std::vector<int64_t>& PlacementFlow::sizes(const Value* value, size_t element) const {
    return facts_.tensors.at(value).at(element).sizes;
}

int64_t PlacementFlow::bytes(const Value* value) const {
    const TensorFact& fact = facts_.tensors.at(value).front();
    auto bytes = static_cast<int64_t>(c10::elementSize(fact.dtype));
    for (const int64_t size : fact.sizes) bytes *= size;
    return bytes;
}

std::optional<int64_t> PlacementFlow::integer(const Value* value) const {
    const auto found = facts_.integers.find(value);
    if (found == facts_.integers.end()) return std::nullopt;
    return found->second;
}

std::string PlacementFlow::parameter_name(int parameter) const {
    if (parameter == Placement::kPositions) return "the positions";
    return parameter < 0 ? "?" : model_.parameters()[parameter].name;
}

std::string PlacementFlow::describe(const Value* value) const {
    if (const auto owner = parameter_of_.find(value); owner != parameter_of_.end())
        return parameter_name(owner->second);
    if (value->node() == lowered_.graph->param_node()) return "an argument of forward";
    return "what " + describe_node(*value->node()) + " makes";
}

std::optional<PlacementFlow::Origin> PlacementFlow::origin_of(const Value* value) const {
    if (const auto owner = parameter_of_.find(value); owner != parameter_of_.end()) {
        Origin origin{owner->second, {}};
        for (size_t d = 0; has_sizes(value) && d < sizes(value).size(); ++d)
            origin.dims.push_back(static_cast<int64_t>(d));
        return origin;
    }
    const Node& node = *value->node();
    if (node.owningBlock() != lowered_.graph->block() || !passes_on(node)) return std::nullopt;
    std::optional<Origin> origin = origin_of(node.input(0));
    if (!origin) return std::nullopt;
    const auto dims = static_cast<int64_t>(origin->dims.size());
    if (node.kind() == aten::permute) return std::nullopt;
    if (node.kind() == aten::transpose) {
        const auto a = integer(node.input(1)), b = integer(node.input(2));
        if (!a || !b) return std::nullopt;
        std::swap(origin->dims[(*a + dims) % dims], origin->dims[(*b + dims) % dims]);
    } else if (node.kind() == aten::t || node.kind() == aten::numpy_T) {
        std::reverse(origin->dims.begin(), origin->dims.end());
    }
    return origin;
}

bool PlacementFlow::is_grouped_product(const Node& node) {
    return is_one_of(node, {"dslaunch::grouped_mm"});
}

std::optional<LinearForm> PlacementFlow::linear_form(const Node& node) const {
    LinearForm form;
    if (node.kind() == aten::linear) {
        form.bias = 2;
    } else if (node.kind() == aten::addmm) {
        form = {1, 2, 0, 0, 1};
    } else if (node.kind() == aten::matmul || node.kind() == aten::mm) {
        form.weight_in = 0;
        form.weight_out = 1;
    } else if (is_grouped_product(node)) {
        form.weight_out = 2;
    } else {
        return std::nullopt;
    }
    const Value* weight = node.input(form.weight);
    const size_t dims = is_grouped_product(node) ? 3 : 2;
    if (!has_sizes(weight) || sizes(weight).size() != dims || !origin_of(weight))
        return std::nullopt;
    if (origin_of(node.input(form.input))) return std::nullopt;  // a product of parameters
    if (form.bias && node.input(*form.bias)->type()->kind() == c10::TypeKind::NoneType)
        form.bias.reset();
    return form;
}

template <typename Visit>
bool PlacementFlow::visit_makers(const Value* value, const Visit& visit) const {
    constexpr size_t kNodesMax = 200;  // rotary embeddings and norms of queries need far fewer
    std::set<const Node*> seen;
    std::vector<const Value*> open = {value};
    while (!open.empty()) {
        const Value* next = open.back();
        open.pop_back();
        if (!needs_gradient(next) || parameter_of_.count(next) > 0) continue;
        const Node* node = next->node();
        if (!seen.insert(node).second) continue;
        bool goes_on = false;
        if (seen.size() > kNodesMax || !visit(*node, goes_on)) return false;
        if (goes_on) open.insert(open.end(), node->inputs().begin(), node->inputs().end());
    }
    return true;
}

std::vector<std::pair<int, Placement>> PlacementFlow::makers_of(const Value* value) const {
    std::vector<std::pair<int, Placement>> makers;
    const bool found = visit_makers(value, [&](const Node& node, bool& goes_on) {
        if (node.kind() == aten::embedding) return false;
        const auto form = linear_form(node);
        goes_on = !form;
        if (!form) return true;
        const Origin origin = *origin_of(node.input(form->weight));
        if (decisions_->parameters.count(origin.parameter) > 0 ||
            decisions_->locked.count(origin.parameter) > 0)
            return false;
        const auto out = static_cast<size_t>(form->weight_out);
        makers.emplace_back(
            origin.parameter,
            Placement::split({origin.dims[out], {sizes(node.input(form->weight))[out]}},
                             origin.parameter));
        return true;
    });
    return found ? makers : std::vector<std::pair<int, Placement>>{};
}

bool PlacementFlow::made_of_parameters(const Value* value) const {
    return needs_gradient(value) && visit_makers(value, [&](const Node& node, bool& goes_on) {
               goes_on = true;
               const bool looks_up = node.kind() == aten::embedding && is_argument(node.input(1));
               return !looks_up && !linear_form(node);
           });
}

bool PlacementFlow::is_argument(const Value* value) {
    const Node& node = *value->node();
    if (node.kind() == prim::Param) return true;
    return is_one_of(node,
                     {"aten::view", "aten::reshape", "aten::to", "aten::flatten", "aten::slice",
                      "aten::contiguous", "aten::squeeze", "aten::unsqueeze"}) &&
           is_argument(node.input(0));
}

namespace {

// Returns the numbers of positions next to POSITIONS that RANKS can share, "12 or 14".
std::string counts_that_divide(int64_t positions, int64_t ranks) {
    const int64_t below = positions / ranks * ranks;
    return below == 0 ? fmt::format("{}", ranks) : fmt::format("{} or {}", below, below + ranks);
}

// Returns the numbers of ranks near RANKS that can share POSITIONS, "3 or 5 ranks".
std::string ranks_that_divide(int64_t positions, int64_t ranks) {
    std::vector<std::string> numbers;
    for (int64_t number = 2; number <= std::min(positions, 2 * ranks); ++number)
        if (positions % number == 0) numbers.push_back(std::to_string(number));
    return numbers.empty() ? "1 rank" : join(numbers, " or ") + " ranks";
}

}  // namespace

void PlacementFlow::split_positions(PositionSplit split) {
    position_split_ = split;
    for (const Node* node : nodes_) {
        const bool is_table = node->kind() == aten::embedding && has_sizes(node->input(1)) &&
                              !sizes(node->input(1)).empty() && is_argument(node->input(1));
        if (!is_table) continue;
        positions_ = sizes(node->input(1)).back();
        if (positions_ % size_ != 0)
            fail(
                ExitCode::kInput,
                "sequence parallelism of {} ranks: the {} positions of a sample, which {} reads, "
                "do not divide among them. Take samples of {} positions (dslaunch.data.context for "
                "tokens), or {} (dslaunch.sequence.size)",
                size_, positions_, describe_node(*node), counts_that_divide(positions_, size_),
                ranks_that_divide(positions_, size_));
        return;
    }
    fail(ExitCode::kInput,
         "sequence parallelism of {} ranks: no table of the graph is indexed by an argument of "
         "forward, so that it is not known what its positions are",
         size_);
}

void PlacementFlow::gather_positions(Node& node, size_t index) {
    edit({TensorEdit::Kind::kGather, &node, index, placement_of(node.input(index)).shard, 0});
    gathered_.insert(index);
}

bool PlacementFlow::sum_output(TensorEdit sum, std::optional<size_t> bias) {
    const Value* output = sum.node->output();
    const std::vector<int64_t>& extents = sizes(output);
    Placement kept;
    // [.., positions, features], or a batch of that in rows.
    const size_t dims = extents.size();
    const bool between = position_split_ == PositionSplit::kBetweenLayers;
    if (between && dims > 2 && extents[dims - 2] == positions_) {
        kept =
            Placement::split({static_cast<int64_t>(dims) - 2, {positions_}}, Placement::kPositions);
    } else if (between && dims == 2 && extents[0] % positions_ == 0) {
        const auto rows = static_cast<size_t>(extents[0] / positions_);
        kept = Placement::split({0, std::vector<int64_t>(rows, positions_)}, Placement::kPositions);
    }
    if (kept.is_shard()) {
        if (bias) read_for_share(*sum.node, *bias);
        sum.keep = kept.shard;
        place(output, std::move(kept));
    }
    edit(std::move(sum));
    return true;
}

void PlacementFlow::read_for_share(Node& node, size_t index) {
    Value* value = node.input(index);
    if (!input(node, index).is_whole() || !needs_gradient(value)) return;
    if (gathered_.count(index) > 0) {
        for (TensorEdit& gather : edits_)
            if (gather.node == &node && gather.input == index &&
                gather.kind == TensorEdit::Kind::kGather)
                gather.kind = TensorEdit::Kind::kGatherSum;
        return;
    }
    const bool is_parameter = parameter_of_.count(value) > 0;
    edit(
        {is_parameter ? TensorEdit::Kind::kSummand : TensorEdit::Kind::kCopy, &node, index, {}, 0});
}

bool PlacementFlow::share_input(Node& node, size_t index, const Placement& like) {
    const Value* value = node.input(index);
    const Placement here = input(node, index);
    DSL_CHECK(!here.is_shard(), "a share of a share");
    if (here.is_whole() && needs_gradient(value) && like.is_positions()) {
        edit({TensorEdit::Kind::kScatter, &node, index, like.shard, 0});
        return true;
    }
    if (here.is_whole() && needs_gradient(value)) {
        if (const auto makers = makers_of(value); !makers.empty())
            return demand(node, makers, "meets " + describe(value) + ", which is not split");
        if (!made_of_parameters(value))
            return obstruct(node, like.parameter,
                            "meets " + describe(value) + ", which is not split");
        read_for_share(node, index);
    }
    edit({TensorEdit::Kind::kShare, &node, index, like.shard, 0});
    return true;
}

bool PlacementFlow::obstruct(Node& node, int parameter, std::string reason) {
    obstacle_ = TensorObstacle{&node, std::move(reason), parameter, false, {}};
    return false;
}

bool PlacementFlow::obstruct_indivisible(Node& node, int parameter, std::string reason) {
    obstruct(node, parameter, std::move(reason));
    obstacle_->indivisible = true;
    return false;
}

bool PlacementFlow::demand(Node& node, std::vector<std::pair<int, Placement>> demands,
                           std::string reason) {
    const int parameter = demands.front().second.parameter;
    obstruct(node, parameter, std::move(reason));
    for (const auto& [wanted, placement] : demands) {
        if (decisions_->locked.count(wanted) == 0) continue;
        obstacle_->reason += fmt::format("; {} stays whole", parameter_name(wanted));
        return false;
    }
    obstacle_->demands = std::move(demands);
    return false;
}

bool PlacementFlow::demand_blocks(Node& node, int parameter, std::vector<int64_t> blocks,
                                  std::string reason) {
    const auto decided = decisions_->parameters.find(parameter);
    if (decided == decisions_->parameters.end() || !decided->second.is_shard() ||
        decided->second.shard.blocks == blocks)
        return obstruct(node, parameter, std::move(reason));
    Placement placement = decided->second;
    placement.shard.blocks = std::move(blocks);
    return demand(node, {{parameter, placement}}, std::move(reason));
}

bool PlacementFlow::touches(const Node& node) const {
    bool any = false;
    visit_reads(node, [&](const Value* value) {
        if (any) return;
        if (parameter_of_.count(value) > 0) {
            any = !placement_of(value).is_whole();
        } else {
            any = placements_.count(value) > 0;
        }
    });
    return any;
}

}  // namespace dslaunch::graph
