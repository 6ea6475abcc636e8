// Rules of products: linear layers, products of activations, einsum, convolutions.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <string>

#include "base/text.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/tensor/placement_rules.h"
#include "graph/tensor/rule_tools.h"

namespace dslaunch::graph {

namespace {

using EditKind = TensorEdit::Kind;

// Places a layer whose inputs are split: each rank computes a summand of its result.
bool row_product(FlowState& flow, Node& node, const LinearForm& form) {
    const TensorPlacement x = flow.input(node, form.input);
    const TensorPlacement weight = flow.input(node, form.weight);
    TensorPlacement wanted = moved_shard(x, form.weight_in);
    const bool fits = weight.is_shard() && weight.shard == wanted.shard;
    const auto decided = flow.graph().origin_of(node.input(form.weight));
    if (!fits) {
        if (weight.is_shard() && weight.shard.dim != form.weight_in)
            return flow.obstruct(node, x.parameter,
                                 flow.graph().parameter_name(decided->parameter) +
                                     " is split by its outputs, but its inputs are split too");
        wanted.parameter = decided->parameter;
        return split_parameter(flow, node, form.weight, wanted);
    }
    for (const char* factor : {"alpha", "beta"})
        if (const auto index = argument_at(node, factor);
            index && constant_number(node, factor) != 1)
            return flow.obstruct(node, x.parameter, fmt::format("{} is not 1", factor));
    return flow.sum_output({EditKind::kSum, &node, 0, {}, 0}, form.bias);
}

// Places a layer whose outputs are split: each rank computes some features of the whole input.
bool column_product(FlowState& flow, Node& node, const LinearForm& form) {
    const TensorPlacement weight = flow.input(node, form.weight);
    if (form.bias) {
        const TensorPlacement bias = flow.input(node, *form.bias);
        const TensorPlacement wanted =
            moved_shard(weight, dims_of(flow, node.input(*form.bias)) - 1);
        if (!bias.is_placed_like(wanted)) return split_parameter(flow, node, *form.bias, wanted);
    }
    flow.read_for_share(node, form.input);
    flow.place(node.output(), moved_shard(weight, dims_of(flow, node.output()) - 1));
    return true;
}

bool linear_rule(FlowState& flow, Node& node, const LinearForm& form) {
    const TensorPlacement weight = flow.input(node, form.weight);
    // A layer that is split among ranks works on all positions.
    const bool between = flow.position_split() == PositionSplit::kBetweenLayers;
    if (between && !weight.is_whole() && flow.input(node, form.input).is_positions())
        flow.gather_positions(node, form.input);
    const TensorPlacement x = flow.input(node, form.input);
    const int64_t last = dims_of(flow, node.input(form.input)) - 1;
    const bool by_outputs = weight.is_shard() && weight.shard.dim == form.weight_out;
    if (form.bias && flow.input(node, *form.bias).is_shard() && !by_outputs)
        return flow.obstruct(node, flow.input(node, *form.bias).parameter,
                             "its bias is split, but its outputs are not");
    if (x.is_shard() && x.shard.dim == last) return row_product(flow, node, form);
    if (by_outputs) {
        if (x.is_shard())
            return flow.obstruct(node, x.parameter,
                                 "its inputs are split in a dimension other than the last");
        return column_product(flow, node, form);
    }
    if (weight.is_shard()) {  // a given rule says row, and the input is whole
        if (x.is_shard())
            return flow.obstruct(node, x.parameter,
                                 "its inputs are split in a dimension other than the last");
        flow.read_for_share(node, form.input);
        flow.edit({EditKind::kShare, &node, form.input, moved_shard(weight, last).shard, 0});
        return flow.sum_output({EditKind::kSum, &node, 0, {}, 0}, form.bias);
    }
    for (size_t i = 0; i < node.inputs().size(); ++i) flow.read_for_share(node, i);
    flow.place(node.output(), x.is_shard() ? x : TensorPlacement::copied());
    return true;
}

// Gathers the keys or values of attention that is written as matrix products, if positions are
// split everywhere. A rank has only its own queries, but it needs the keys and values at all
// positions.
void gather_keys(FlowState& flow, Node& node) {
    const TensorPlacement right = flow.input(node, 1);
    if (flow.position_split() != PositionSplit::kEverywhere || !right.is_positions()) return;
    if (right.shard.dim + 2 < dims_of(flow, node.input(1))) return;  // a batch of matrices
    flow.gather_positions(node, 1);
    flow.read_for_share(node, 1);
}

// Places a product [.., m, k] x [.., k, n] of activations. An operand may be split in m, in n, or
// in a batch dimension. The other operand stays whole if it does not have this dimension, or if its
// size there is 1.
bool product_rule(FlowState& flow, Node& node) {
    // Each expert multiplies a range of rows. The ranges refer to all rows, so rows must not be
    // split.
    if (FlowGraph::is_grouped_product(node) &&
        (flow.input(node, 2).is_shard() ||
         (flow.input(node, 0).is_shard() && flow.input(node, 0).shard.dim == 0)))
        return flow.obstruct(node, flow.input(node, 0).parameter, "its rows are split");
    if (const auto form = flow.graph().linear_form(node)) return linear_rule(flow, node, *form);
    if (node.kind() != aten::matmul && node.kind() != aten::bmm)
        return flow.obstruct(node, -1, "it is not supported with these operands");
    const int64_t out_dims = dims_of(flow, node.output());
    gather_keys(flow, node);
    std::optional<TensorPlacement> split;
    for (size_t i = 0; i < 2; ++i) {
        const TensorPlacement operand = flow.input(node, i);
        if (!operand.is_shard()) continue;
        const int64_t dims = dims_of(flow, node.input(i));
        const int64_t from_end = dims - operand.shard.dim;
        if (from_end == (i == 0 ? 1 : 2))
            return flow.obstruct(node, operand.parameter, "it sums over the split dimension");
        if (dims < 2 || dims_of(flow, node.input(1 - i)) < 2)
            return flow.obstruct(node, operand.parameter, "one of its operands is a vector");
        const TensorPlacement here = moved_shard(operand, out_dims - from_end);
        if (split && !split->is_placed_like(here))
            return flow.demand_blocks(node, split->parameter, here.shard.blocks,
                                      "its operands are split differently");
        split = here;
    }
    for (size_t i = 0; i < 2; ++i) {
        if (flow.input(node, i).is_shard()) continue;
        const int64_t dims = dims_of(flow, node.input(i));
        const int64_t from_end = split ? out_dims - split->shard.dim : 0;
        const int64_t dim = dims - from_end;
        const bool walks =
            split && from_end > 2 && dim >= 0 && flow.graph().sizes(node.input(i))[dim] > 1;
        if (!walks) {
            flow.read_for_share(node, i);
        } else if (!flow.share_input(node, i, moved_shard(*split, dim))) {
            return false;
        }
    }
    flow.place(node.output(), split ? *split : TensorPlacement::copied());
    return true;
}

// Places a depthwise convolution of an input [batch, channels, ..]. The channels may be split,
// because each output channel depends on a single input channel.
bool convolution_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0);
    const auto groups_at = argument_at(node, "groups");
    const auto groups = groups_at ? flow.graph().integer(node.input(*groups_at)) : std::nullopt;
    if (!x.is_shard()) {
        if (flow.input(node, 1).is_shard())
            return flow.obstruct(node, flow.input(node, 1).parameter,
                                 "its weight is split, but its inputs are not");
        return pass_copied(flow, node);
    }
    const auto& sizes = flow.graph().sizes(node.input(0));
    const bool is_batch = sizes.size() == flow.graph().sizes(node.input(1)).size();
    if (!is_batch || x.shard.dim != 1 || groups != sizes[1])
        return flow.obstruct(node, x.parameter, "it mixes values across the split dimension");
    if (!plan::divides_evenly(x.shard, flow.size()))
        return flow.obstruct_indivisible(node, x.parameter,
                                         "its channels cannot be divided evenly");
    for (size_t i = 1; i < 3; ++i) {
        if (is_none(*node.input(i))) continue;
        const TensorPlacement wanted = moved_shard(x, 0);
        if (flow.graph().sizes(node.input(i))[0] != sizes[1])
            return flow.obstruct(node, x.parameter,
                                 "it makes several output channels from one input channel");
        if (flow.input(node, i).is_placed_like(wanted)) continue;
        if (flow.graph().origin_of(node.input(i))) return split_parameter(flow, node, i, wanted);
        if (!flow.share_input(node, i, wanted)) return false;
    }
    flow.edit({EditKind::kDivide, &node, *groups_at, {}, sizes[1] / flow.size()});
    flow.place(node.output(), x);
    return true;
}

// A letter of einsum's equation. The operands that have this letter are split in the letter's
// dimension; `split` is their placement.
struct Subscript {
    char letter = 0;
    TensorPlacement split;
};

// Places einsum("bhqd,bhkd->bhqk", [q, k]): one subscript may be split, in every operand that has
// it. If the result does not have this subscript, the ranks' results are added up.
bool einsum_rule(FlowState& flow, Node& node) {
    const auto text = torch::jit::toIValue(node.input(0));
    Node* const list = node.input(1)->node();
    std::vector<TensorPlacement> operands = flow.list_of(node.input(1));
    if (!text || !text->isString() || list->kind() != prim::ListConstruct)
        return flow.obstruct(node, -1, "its operands are not known");
    std::string equation = text->toStringRef();
    std::erase(equation, ' ');
    const size_t arrow = equation.find("->");
    if (arrow == std::string::npos || equation.find('.') != std::string::npos)
        return flow.obstruct(node, -1, "its equation has no `->` or contains `...`");
    const std::string result = equation.substr(arrow + 2);
    const std::vector<std::string> terms = split(equation.substr(0, arrow), ',');
    std::optional<Subscript> found;
    for (size_t i = 0; i < operands.size(); ++i) {
        if (!operands[i].is_shard()) continue;
        const char letter = terms.at(i).at(static_cast<size_t>(operands[i].shard.dim));
        if (found && found->letter != letter) {
            // A rank needs the keys at all positions, so they are gathered.
            if (!operands[i].is_positions() ||
                flow.position_split() != PositionSplit::kEverywhere ||
                node.input(1)->uses().size() != 1)
                return flow.obstruct(node, operands[i].parameter,
                                     "its operands are split in different dimensions");
            const bool sums = flow.graph().needs_gradient(list->input(i));
            flow.edit(
                {sums ? EditKind::kGatherSum : EditKind::kGather, list, i, operands[i].shard, 0});
            operands[i] = TensorPlacement::copied();
            continue;
        }
        if (!found) found = Subscript{letter, operands[i]};
    }
    for (size_t i = 0; i < operands.size(); ++i) {
        const size_t at = found ? terms.at(i).find(found->letter) : std::string::npos;
        if (at == std::string::npos) {
            flow.read_for_share(*list, i);
            continue;
        }
        const TensorPlacement wanted = moved_shard(found->split, static_cast<int64_t>(at));
        if (operands[i].is_shard() && !operands[i].is_placed_like(wanted))
            return flow.demand_blocks(node, operands[i].parameter, wanted.shard.blocks,
                                      "its operands are split differently");
        if (!operands[i].is_shard() && !flow.share_input(*list, i, wanted)) return false;
    }
    if (!found) {
        flow.place(node.output(), TensorPlacement::copied());
        return true;
    }
    const size_t at = result.find(found->letter);
    if (at == std::string::npos) return flow.sum_output({EditKind::kSum, &node, 0, {}, 0}, {});
    flow.place(node.output(), moved_shard(found->split, static_cast<int64_t>(at)));
    return true;
}

}  // namespace

void add_product_rules(PlacementRules& rules) {
    rules.add({"aten::linear", "aten::addmm", "aten::matmul", "aten::mm", "aten::bmm",
               "dslaunch::grouped_mm"},
              product_rule);
    rules.add({"aten::conv1d", "aten::conv2d", "aten::conv3d"}, convolution_rule);
    rules.add({"aten::einsum"}, einsum_rule);
}

}  // namespace dslaunch::graph
