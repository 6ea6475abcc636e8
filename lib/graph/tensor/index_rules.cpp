// Rules of the operators that take or write elements at places which a tensor names.
#include <ATen/core/interned_strings.h>

#include <optional>

#include "graph/tensor/placement_flow.h"
#include "graph/tensor/rule_tools.h"

namespace dslaunch::graph {

using torch::jit::Node;

namespace {

// The dimension that input 1 gives, from 0.
std::optional<int64_t> dim_of(const PlacementFlow& flow, const Node& node) {
    const int64_t dims = dims_of(flow, node.input(0));
    const auto dim = flow.integer(node.input(1));
    if (!dim) return std::nullopt;
    return (*dim + dims) % dims;
}

// Elements of a tensor at INDEX along a dimension that is not split; both are split alike in
// another.
bool gather_rule(PlacementFlow& flow, Node& node) {
    const auto dim = dim_of(flow, node);
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    const Placement x = flow.input(node, 0), index = flow.input(node, 2);
    if (!x.is_shard() && !index.is_shard()) {
        for (const size_t i : {size_t{0}, size_t{2}}) flow.read_for_share(node, i);
        flow.place(node.output(), copied_placement());
        return true;
    }
    const Placement split = x.is_shard() ? x : index;
    if (split.shard.dim == *dim || (x.is_shard() && index.is_shard() && !x.same_place(index)))
        return flow.obstruct(node, split.parameter, "it needs all of what is split");
    const auto at = static_cast<size_t>(split.shard.dim);
    if (flow.sizes(node.input(0))[at] != flow.sizes(node.input(2))[at])
        return flow.obstruct(node, split.parameter, "it takes a part of what is split");
    for (const size_t i : {size_t{0}, size_t{2}})
        if (!flow.input(node, i).is_shard() && !flow.share_input(node, i, split)) return false;
    flow.place(node.output(), split);
    return true;
}

// Writes a number or a source to places of a tensor along a dimension that is not split.
bool scatter_rule(PlacementFlow& flow, Node& node) {
    constexpr size_t kOperands[] = {0, 2, 3};
    const auto dim = dim_of(flow, node);
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    std::optional<Placement> split;
    for (const size_t i : kOperands)
        if (!split && flow.input(node, i).is_shard()) split = flow.input(node, i);
    const bool in_place = node.schema().is_mutable();
    if (!split || split->shard.dim == *dim || (in_place && !flow.input(node, 0).is_shard()))
        return flow.obstruct(node, split ? split->parameter : -1, "it needs all of what is split");
    const auto at = static_cast<size_t>(split->shard.dim);
    for (const size_t i : kOperands) {
        if (!flow.has_sizes(node.input(i)) || flow.sizes(node.input(i)).empty()) continue;
        if (flow.sizes(node.input(i))[at] != flow.sizes(node.input(0))[at])
            return flow.obstruct(node, split->parameter, "it writes a part of what is split");
        const Placement here = flow.input(node, i);
        if (here.is_shard() && !here.same_place(*split))
            return flow.obstruct(node, split->parameter, "its operands are split differently");
        if (!here.is_shard() && !flow.share_input(node, i, *split)) return false;
    }
    flow.place(node.output(), *split);
    return true;
}

}  // namespace

void add_index_rules(PlacementRules& rules) {
    rules.add({"aten::gather"}, gather_rule);
    rules.add({"aten::scatter", "aten::scatter_", "aten::scatter_add", "aten::scatter_add_"},
              scatter_rule);
}

}  // namespace dslaunch::graph
