#include "graph/tensor/flow_graph.h"

#include <algorithm>

#include "base/check.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/writes/written_values.h"

namespace dslaunch::graph {

namespace {

// Returns true for operators that return the values of their first tensor in another dtype or
// order.
bool passes_on(const Node& node) {
    return is_one_of(node,
                     {"aten::t", "aten::transpose", "aten::to", "aten::numpy_T", "aten::contiguous",
                      "aten::clone", "aten::permute", "aten::_autocast_to_full_precision",
                      "aten::_autocast_to_reduced_precision", "dslaunch::match_dtype"});
}

}  // namespace

FlowGraph::FlowGraph(const Model& model, const LoweredGraph& lowered, const GraphFacts& facts)
    : model_(model), lowered_(lowered), facts_(facts) {
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
        for_each_read(*node, [&](const Value* value) { needs = needs || needs_gradient(value); });
        if (!needs || node->kind() == aten::detach) continue;
        for (const Value* output : node->outputs())
            if (may_need_gradient(*output)) needs_gradient_.insert(output);
    }
    written_ = find_written_values(graph);
}

bool FlowGraph::may_need_gradient(const Value& value) const {
    const auto found = facts_.tensors.find(&value);
    if (found != facts_.tensors.end() && !found->second.empty())
        return at::isFloatingType(found->second.front().dtype) ||
               at::isComplexType(found->second.front().dtype);
    // No facts are known about VALUE, so only its type can tell. Values of these types may contain
    // a tensor even without facts. Other values with tensors always have facts.
    return is_tensor(value) || value.type()->kind() == c10::TypeKind::TupleType ||
           value.type()->kind() == c10::TypeKind::OptionalType ||
           value.type()->kind() == c10::TypeKind::DictType;
}

size_t FlowGraph::last_use(const Value* value) const {
    size_t last = 0;
    for (const auto& use : value->uses()) {
        if (use.user == lowered_.graph->return_node()) return nodes_.size();
        last = std::max(last, index_.at(top_of(use.user)));
    }
    return last;
}

std::pair<size_t, size_t> FlowGraph::uses_of(int parameter) const {
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

const std::vector<int64_t>& FlowGraph::sizes(const Value* value, size_t element) const {
    return facts_.tensors.at(value).at(element).sizes;
}

size_t FlowGraph::list_size(const Value* value) const {
    const auto found = facts_.tensors.find(value);
    return found == facts_.tensors.end() ? 0 : found->second.size();
}

int64_t FlowGraph::bytes(const Value* value) const {
    const TensorFact& fact = facts_.tensors.at(value).front();
    auto bytes = static_cast<int64_t>(c10::elementSize(fact.dtype));
    for (const int64_t size : fact.sizes) bytes *= size;
    return bytes;
}

std::optional<int64_t> FlowGraph::integer(const Value* value) const {
    const auto found = facts_.integers.find(value);
    if (found == facts_.integers.end()) return std::nullopt;
    return found->second;
}

std::optional<int> FlowGraph::parameter_of(const Value* value) const {
    const auto found = parameter_of_.find(value);
    return found == parameter_of_.end() ? std::nullopt : std::optional(found->second);
}

std::string FlowGraph::parameter_name(int parameter) const {
    if (parameter == TensorPlacement::kPositions) return "the positions";
    return parameter < 0 ? "?" : model_.parameters()[parameter].name;
}

std::string FlowGraph::describe(const Value* value) const {
    if (const auto owner = parameter_of_.find(value); owner != parameter_of_.end())
        return parameter_name(owner->second);
    if (value->node() == lowered_.graph->param_node()) return "an argument of forward";
    return "the result of " + describe_node(*value->node());
}

std::optional<ParameterOrigin> FlowGraph::origin_of(const Value* value) const {
    if (const auto owner = parameter_of_.find(value); owner != parameter_of_.end()) {
        ParameterOrigin origin{owner->second, {}};
        for (size_t d = 0; has_sizes(value) && d < sizes(value).size(); ++d)
            origin.dims.push_back(static_cast<int64_t>(d));
        return origin;
    }
    const Node& node = *value->node();
    if (node.owningBlock() != lowered_.graph->block() || !passes_on(node)) return std::nullopt;
    std::optional<ParameterOrigin> origin = origin_of(node.input(0));
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

bool FlowGraph::is_grouped_product(const Node& node) {
    return is_one_of(node, {"dslaunch::grouped_mm"});
}

std::optional<LinearForm> FlowGraph::linear_form(const Node& node) const {
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
bool FlowGraph::visit_makers(const Value* value, const Visit& visit) const {
    constexpr int kNodesMax = 200;  // rotary embeddings and norms of queries need far fewer
    const auto has_maker = [this](const Value* made) {
        return needs_gradient(made) && !parameter_of(made);
    };
    if (!has_maker(value)) return true;
    int nodes = 0;
    return visit_once({value->node()}, [&](const Node& node, std::vector<const Node*>& open) {
        bool goes_on = false;
        if (++nodes > kNodesMax || !visit(node, goes_on)) return false;
        if (!goes_on) return true;
        for (const Value* input : node.inputs())
            if (has_maker(input)) open.push_back(input->node());
        return true;
    });
}

std::optional<std::vector<TensorPlacement>> FlowGraph::layers_of(const Value* value) const {
    std::vector<TensorPlacement> layers;
    const bool found = visit_makers(value, [&](const Node& node, bool& goes_on) {
        if (node.kind() == aten::embedding) return false;
        const auto form = linear_form(node);
        goes_on = !form;
        if (!form) return true;
        const ParameterOrigin origin = *origin_of(node.input(form->weight));
        const auto out = static_cast<size_t>(form->weight_out);
        layers.push_back(TensorPlacement::split(
            {origin.dims[out], {sizes(node.input(form->weight))[out]}}, origin.parameter));
        return true;
    });
    return found ? std::optional(std::move(layers)) : std::nullopt;
}

bool FlowGraph::is_made_of_parameters(const Value* value) const {
    return needs_gradient(value) && visit_makers(value, [&](const Node& node, bool& goes_on) {
               goes_on = true;
               const bool looks_up = node.kind() == aten::embedding && is_argument(node.input(1));
               return !looks_up && !linear_form(node);
           });
}

bool FlowGraph::is_argument(const Value* value) {
    const Value* const origin = follow_back(value, [](const Value* at) -> const Value* {
        const bool passes = is_one_of(
            *at->node(), {"aten::view", "aten::reshape", "aten::to", "aten::flatten", "aten::slice",
                          "aten::contiguous", "aten::squeeze", "aten::unsqueeze"});
        return passes ? at->node()->input(0) : nullptr;
    });
    return origin->node()->kind() == prim::Param;
}

const Node* FlowGraph::table_of_tokens() const {
    for (const Node* node : nodes_)
        if (node->kind() == aten::embedding && has_sizes(node->input(1)) &&
            !sizes(node->input(1)).empty() && is_argument(node->input(1)))
            return node;
    return nullptr;
}

}  // namespace dslaunch::graph
