// Rules of embeddings, losses, norms, reductions, indexing by a tensor, and all operators that work
// element by element.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <string_view>

#include "graph/nodes/graph_nodes.h"
#include "graph/tensor/placement_rules.h"
#include "graph/tensor/rule_tools.h"

namespace dslaunch::graph {

namespace {

using EditKind = TensorEdit::Kind;

// Places a lookup in a table that is not split. If positions are split everywhere and the indices
// are forward's tokens, each rank looks up only its own positions.
bool whole_table(FlowState& flow, Node& node) {
    const bool everywhere = flow.position_split() == PositionSplit::kEverywhere;
    if (!everywhere || !FlowGraph::is_argument(node.input(1))) {
        flow.place(node.output(), TensorPlacement::copied());
        return true;
    }
    const int64_t last = dims_of(flow, node.input(1)) - 1;
    if (last < 0 || flow.graph().sizes(node.input(1)).back() != flow.positions())
        return flow.obstruct(node, TensorPlacement::kPositions,
                             fmt::format("its indices do not have {} positions", flow.positions()));
    const TensorPlacement rows =
        TensorPlacement::split({last, {flow.positions()}}, TensorPlacement::kPositions);
    flow.edit({EditKind::kShare, &node, 1, rows.shard, 0});
    flow.place(node.output(), rows);
    return true;
}

bool embedding_rule(FlowState& flow, Node& node) {
    const TensorPlacement weight = flow.input(node, 0);
    const TensorPlacement indices = flow.input(node, 1);
    if (weight.is_copied() && !indices.is_shard()) return whole_table(flow, node);
    if (!weight.is_shard() || indices.is_shard())
        return flow.obstruct(node, std::max(weight.parameter, indices.parameter),
                             "its indices are split");
    if (weight.shard.dim != 0 || weight.shard.blocks.size() != 1)
        return flow.obstruct(node, weight.parameter,
                             "it is split in a dimension other than its rows");
    for (const char* flag : {"scale_grad_by_freq", "sparse"})
        if (constant_number(node, flag) != 0)
            return flow.obstruct(node, weight.parameter, fmt::format("it has {}", flag));
    return flow.sum_output({EditKind::kEmbedding, &node, 0, weight.shard, 0}, {});
}

// Places a loss whose rows are split: each rank adds up the losses of its rows.
bool row_loss_rule(FlowState& flow, Node& node) {
    const TensorPlacement logits = flow.input(node, 0);
    const auto refuse = [&](const char* why) {
        return flow.obstruct(node, TensorPlacement::kPositions, why);
    };
    if (logits.shard.dim != 0 || dims_of(flow, node.input(0)) != 2)
        return refuse("it is split in a dimension other than its rows");
    if (flow.input(node, 1).is_shard() || dims_of(flow, node.input(1)) != 1)
        return refuse("its targets are split, or are probabilities");
    if (!is_none(*node.input(2))) return refuse("it uses class weights");
    if (constant_number(node, "reduction").value_or(0) == 0)
        return refuse("it returns a loss for each row");
    flow.edit({EditKind::kRowLoss, &node, 0, logits.shard, 0});
    return true;
}

bool cross_entropy_rule(FlowState& flow, Node& node) {
    const TensorPlacement logits = flow.input(node, 0);
    if (flow.position_split() == PositionSplit::kEverywhere && logits.is_positions())
        return row_loss_rule(flow, node);
    if (flow.input(node, 1).is_shard())
        return flow.obstruct(node, logits.parameter, "its targets are split");
    if (!logits.is_shard()) return pass_copied(flow, node);
    if (logits.shard.dim != 1 || dims_of(flow, node.input(0)) != 2 ||
        logits.shard.blocks.size() != 1)
        return flow.obstruct(node, logits.parameter,
                             "it is split in a dimension other than its classes");
    if (dims_of(flow, node.input(1)) != 1)
        return flow.obstruct(node, logits.parameter, "its targets are probabilities");
    if (!is_none(*node.input(2)))
        return flow.obstruct(node, logits.parameter, "it uses class weights");
    if (constant_number(node, "label_smoothing") != 0)
        return flow.obstruct(node, logits.parameter, "it uses label smoothing");
    flow.edit({EditKind::kCrossEntropy, &node, 0, logits.shard, 0});
    return true;
}

// Places a reduction or norm over DIMS: it may run on a split tensor if it does not reduce the
// split dimension. KEEPS: true if the reduced dimensions stay.
bool along_rule(FlowState& flow, Node& node, const std::vector<int64_t>& dims, bool keeps) {
    const TensorPlacement x = flow.input(node, 0);
    for (size_t i = 1; i < node.inputs().size(); ++i) {
        if (flow.input(node, i).is_shard())
            return flow.obstruct(node, flow.input(node, i).parameter, "its weights are split");
        flow.read_for_share(node, i);
    }
    if (!x.is_shard()) {
        flow.read_for_share(node, 0);
        for (const Value* output : node.outputs())
            if (flow.graph().has_sizes(output)) flow.place(output, TensorPlacement::copied());
        return true;
    }
    const int64_t count = dims_of(flow, node.input(0));
    int64_t before = 0;
    for (const int64_t dim : dims) {
        const int64_t at = (dim + count) % count;
        if (at == x.shard.dim)
            return flow.obstruct(node, x.parameter, "it needs all elements of the split dimension");
        before += at < x.shard.dim ? 1 : 0;
    }
    for (const Value* output : node.outputs())
        if (flow.graph().has_sizes(output))
            flow.place(output, keeps ? x : moved_shard(x, x.shard.dim - before));
    return true;
}

bool softmax_rule(FlowState& flow, Node& node) {
    const auto dim = flow.graph().integer(node.input(1));
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    return along_rule(flow, node, {*dim}, true);
}

bool elementwise_rule(FlowState& flow, Node& node);

// Places a sum or a mean over the split dimension: the results of the ranks are added up. A mean
// needs shares of equal size. Returns false for any other node.
bool sums_over_shares(FlowState& flow, Node& node, const std::vector<int64_t>& dims) {
    const TensorPlacement x = flow.input(node, 0);
    if (!x.is_shard() || x.is_positions()) return false;
    const int64_t count = dims_of(flow, node.input(0));
    const bool reduces = std::ranges::any_of(
        dims, [&](int64_t dim) { return (dim + count) % count == x.shard.dim; });
    const bool is_mean = node.kind() == aten::mean;
    if (!reduces || !(is_mean || node.kind() == aten::sum)) return false;
    if (is_mean && !plan::divides_evenly(x.shard, flow.size())) return false;
    flow.edit({EditKind::kSum, &node, 0, {}, is_mean ? flow.size() : 0});
    return true;
}

// Places mean, sum, amax and similar operators, which reduce a list of dimensions, one dimension,
// or all dimensions if none is given.
bool reduction_rule(FlowState& flow, Node& node) {
    std::vector<int64_t> dims;
    if (argument_at(node, "other")) return elementwise_rule(flow, node);  // max(a, b)
    const auto index = argument_at(node, "dim");
    if (index) {
        const Value* const given = node.input(*index);
        if (const auto list = int_list(flow, given)) {
            dims = *list;
        } else if (const auto one = flow.graph().integer(given)) {
            dims = {*one};
        } else if (given->node()->kind() == prim::ListConstruct) {
            return flow.obstruct(node, -1, "its dimensions are not known");
        }
    }
    if (dims.empty())
        for (int64_t d = 0; d < dims_of(flow, node.input(0)); ++d) dims.push_back(d);
    const auto keeps = constant_number(node, "keepdim");
    if (index && !keeps) return flow.obstruct(node, -1, "keepdim is not a constant");
    if (sums_over_shares(flow, node, dims)) return true;
    return along_rule(flow, node, dims, keeps.value_or(0) != 0);
}

bool norm_rule(FlowState& flow, Node& node) {
    const auto shape = argument_at(node, "normalized_shape");
    const Node* maker = node.input(*shape)->node();
    const auto constant = torch::jit::toIValue(node.input(*shape));
    const auto count =
        static_cast<int64_t>(constant ? constant->toIntVector().size() : maker->inputs().size());
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < count; ++d) dims.push_back(-1 - d);
    return along_rule(flow, node, dims, true);
}

// Places operators that work along one dimension and keep it, such as topk and sort.
bool along_one_rule(FlowState& flow, Node& node) {
    const auto index = argument_at(node, "dim");
    const auto dim = index ? flow.graph().integer(node.input(*index)) : std::nullopt;
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    return along_rule(flow, node, {*dim}, true);
}

// Places operators on the matrices of the last two dimensions.
bool matrix_rule(FlowState& flow, Node& node) {
    return along_rule(flow, node, {-1, -2}, true);
}

// Places operators that work element by element on tensors that broadcast against each other.
bool elementwise_rule(FlowState& flow, Node& node) {
    const Value* output = node.output();
    if (!is_tensor(*output))
        return flow.obstruct(node, flow.input(node, 0).parameter,
                             "it is not supported on lists of split tensors");
    const int64_t out_dims = dims_of(flow, output);
    const auto takes_part = [&](size_t i) { return flow.graph().has_sizes(node.input(i)); };
    std::optional<TensorPlacement> split;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        const TensorPlacement operand = flow.input(node, i);
        if (!takes_part(i) || !operand.is_shard()) continue;
        const TensorPlacement here =
            moved_shard(operand, operand.shard.dim + out_dims - dims_of(flow, node.input(i)));
        if (split && split->shard.dim != here.shard.dim)
            return flow.obstruct(node, here.parameter,
                                 "its operands are split in different "
                                 "dimensions");
        if (split && !split->is_placed_like(here)) {
            const TensorPlacement& coarse =
                split->shard.blocks.size() < here.shard.blocks.size() ? *split : here;
            const TensorPlacement& fine =
                split->shard.blocks.size() < here.shard.blocks.size() ? here : *split;
            return flow.demand_blocks(node, coarse.parameter, fine.shard.blocks,
                                      "its operands are split differently");
        }
        if (!split) split = here;
    }
    const bool in_place = node.schema().is_mutable();
    if (in_place && !flow.input(node, 0).is_shard())
        return flow.obstruct(node, -1, "it writes in place to a tensor that is not split");
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        if (!takes_part(i) || flow.input(node, i).is_shard()) continue;
        const int64_t dim =
            split ? split->shard.dim - (out_dims - dims_of(flow, node.input(i))) : -1;
        const bool full = dim >= 0 && flow.graph().sizes(node.input(i))[dim] > 1;
        if (!full) {
            flow.read_for_share(node, i);
            continue;
        }
        const TensorPlacement like = moved_shard(*split, dim);
        const bool own = flow.input(node, i).is_whole() && flow.graph().origin_of(node.input(i)) &&
                         flow.graph().needs_gradient(node.input(i));
        if (own && !like.is_positions()) return split_parameter(flow, node, i, like);
        if (!flow.share_input(node, i, like)) return false;
    }
    flow.place(output, split ? *split : TensorPlacement::copied());
    return true;
}

// Places the output like the first tensor; the other tensors only decide its dtype.
bool cast_rule(FlowState& flow, Node& node) {
    flow.place(node.output(), flow.input(node, 0));
    return true;
}

bool dropout_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0);
    const bool draws = constant_number(node, "p") != 0 && constant_number(node, "train") != 0;
    if (draws && !x.is_shard()) {  // every rank draws the same for its copy
        flow.place(node.output(), x);
        return true;
    }
    if (draws && node.kind() == aten::dropout_)
        return flow.obstruct(node, x.parameter, "it draws random numbers in place");
    if (draws) flow.edit({EditKind::kDropout, &node, 0, x.shard, 0});
    flow.place(node.output(), x);
    return true;
}

// Places a gather at INDEX along a dimension that is not split. In another dimension, both tensors
// may be split if their splits are equal.
bool gather_rule(FlowState& flow, Node& node) {
    const auto dim = dim_argument(flow, node, 1, dims_of(flow, node.input(0)));
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    const TensorPlacement x = flow.input(node, 0), index = flow.input(node, 2);
    if (!x.is_shard() && !index.is_shard()) return pass_copied(flow, node);
    const TensorPlacement split = x.is_shard() ? x : index;
    if (split.shard.dim == *dim || (x.is_shard() && index.is_shard() && !x.is_placed_like(index)))
        return flow.obstruct(node, split.parameter, "it needs all elements of the split dimension");
    const auto at = static_cast<size_t>(split.shard.dim);
    if (flow.graph().sizes(node.input(0))[at] != flow.graph().sizes(node.input(2))[at])
        return flow.obstruct(node, split.parameter, "it takes only a part of the split dimension");
    for (const size_t i : {size_t{0}, size_t{2}})
        if (!flow.input(node, i).is_shard() && !flow.share_input(node, i, split)) return false;
    flow.place(node.output(), split);
    return true;
}

// Places a scatter of a number or a tensor along a dimension that is not split.
bool scatter_rule(FlowState& flow, Node& node) {
    constexpr size_t kOperands[] = {0, 2, 3};
    const auto dim = dim_argument(flow, node, 1, dims_of(flow, node.input(0)));
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    std::optional<TensorPlacement> split;
    for (const size_t i : kOperands)
        if (!split && flow.input(node, i).is_shard()) split = flow.input(node, i);
    const bool in_place = node.schema().is_mutable();
    if (!split || split->shard.dim == *dim || (in_place && !flow.input(node, 0).is_shard()))
        return flow.obstruct(node, split ? split->parameter : -1,
                             "it needs all elements of the split dimension");
    const auto at = static_cast<size_t>(split->shard.dim);
    for (const size_t i : kOperands) {
        if (!flow.graph().has_sizes(node.input(i)) || flow.graph().sizes(node.input(i)).empty())
            continue;
        if (flow.graph().sizes(node.input(i))[at] != flow.graph().sizes(node.input(0))[at])
            return flow.obstruct(node, split->parameter,
                                 "it writes only a part of the split dimension");
        const TensorPlacement here = flow.input(node, i);
        if (here.is_shard() && !here.is_placed_like(*split))
            return flow.obstruct(node, split->parameter, "its operands are split differently");
        if (!here.is_shard() && !flow.share_input(node, i, *split)) return false;
    }
    flow.place(node.output(), *split);
    return true;
}

}  // namespace

void add_operator_rules(PlacementRules& rules) {
    rules.add({"aten::abs",         "aten::add",          "aten::addcdiv",     "aten::addcmul",
               "aten::alias",       "aten::atan2",        "aten::bitwise_and", "aten::bitwise_not",
               "aten::bitwise_or",  "aten::ceil",         "aten::celu",        "aten::clamp",
               "aten::clamp_max",   "aten::clamp_min",    "aten::clone",       "aten::contiguous",
               "aten::cos",         "aten::detach",       "aten::div",         "aten::elu",
               "aten::eq",          "aten::erf",          "aten::exp",         "aten::expm1",
               "aten::floor",       "aten::floor_divide", "aten::fmod",        "aten::ge",
               "aten::gelu",        "aten::gt",           "aten::hardsigmoid", "aten::hardswish",
               "aten::hardtanh",    "aten::isinf",        "aten::isnan",       "aten::le",
               "aten::leaky_relu",  "aten::lerp",         "aten::log",         "aten::log1p",
               "aten::log_sigmoid", "aten::logical_and",  "aten::logical_not", "aten::logical_or",
               "aten::lt",          "aten::masked_fill",  "aten::maximum",     "aten::minimum",
               "aten::mish",        "aten::mul",          "aten::nan_to_num",  "aten::ne",
               "aten::neg",         "aten::ones_like",    "aten::positive",    "aten::pow",
               "aten::reciprocal",  "aten::relu",         "aten::relu6",       "aten::remainder",
               "aten::round",       "aten::rsqrt",        "aten::rsub",        "aten::selu",
               "aten::sigmoid",     "aten::sign",         "aten::silu",        "aten::sin",
               "aten::softplus",    "aten::sqrt",         "aten::square",      "aten::sub",
               "aten::tanh",        "aten::true_divide",  "aten::where",       "aten::zeros_like",
               "aten::__and__",     "aten::__or__",       "aten::multiply",    "aten::subtract",
               "aten::divide",      "aten::negative",     "aten::expand_as",   "aten::full_like",
               "aten::exp2",        "aten::sinh",         "aten::cosh",        "aten::log2",
               "aten::acos",        "aten::asin",         "aten::atan",        "aten::trunc",
               "aten::logical_xor", "aten::isfinite",     "aten::erfc",        "aten::threshold",
               "aten::not_equal",   "aten::greater",      "aten::less"},
              elementwise_rule);
    // These operators write their first input.
    rules.add({"aten::add_", "aten::div_", "aten::mul_", "aten::sub_", "aten::relu_", "aten::silu_",
               "aten::gelu_", "aten::sigmoid_", "aten::tanh_", "aten::masked_fill_", "aten::clamp_",
               "aten::leaky_relu_"},
              elementwise_rule);
    rules.add({"aten::to", "aten::type_as", "aten::_autocast_to_full_precision",
               "aten::_autocast_to_reduced_precision", "dslaunch::match_dtype"},
              cast_rule);
    rules.add({"aten::embedding"}, embedding_rule);
    rules.add({"aten::cross_entropy_loss"}, cross_entropy_rule);
    rules.add({"aten::softmax", "aten::log_softmax", "aten::cumsum"}, softmax_rule);
    rules.add({"aten::mean", "aten::sum", "aten::amax", "aten::amin", "aten::logsumexp",
               "aten::max", "aten::min", "aten::any", "aten::all", "aten::prod", "aten::argmax",
               "aten::argmin", "aten::linalg_vector_norm"},
              reduction_rule);
    rules.add({"aten::topk", "aten::sort", "aten::argsort", "aten::glu", "aten::index_select"},
              along_one_rule);
    rules.add({"aten::tril", "aten::triu"}, matrix_rule);
    rules.add({"aten::gather"}, gather_rule);
    rules.add({"aten::scatter", "aten::scatter_", "aten::scatter_add", "aten::scatter_add_"},
              scatter_rule);
    rules.add({"aten::layer_norm", "aten::rms_norm"}, norm_rule);
    rules.add({"aten::dropout", "aten::dropout_"}, dropout_rule);
}

}  // namespace dslaunch::graph
