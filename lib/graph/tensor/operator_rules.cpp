// Rules of the operators that compute: products, attention, embeddings, losses, norms, and
// everything that works element by element.
#include <ATen/core/interned_strings.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <string_view>

#include "graph/tensor/placement_flow.h"

namespace dslaunch::graph {

using torch::jit::Node;
using torch::jit::Value;

namespace {

using Kind = Placement::Kind;
using EditKind = TensorEdit::Kind;

Placement copied() {
    Placement placement;
    placement.kind = Kind::kCopied;
    return placement;
}

Placement shard_of(const Placement& like, int64_t dim) {
    Placement placement = like;
    placement.shard.dim = dim;
    return placement;
}

bool is_none(const Value& value) {
    return value.type()->kind() == c10::TypeKind::NoneType;
}

int64_t dims_of(const PlacementFlow& flow, const Value* value) {
    return static_cast<int64_t>(flow.sizes(value).size());
}

std::optional<size_t> argument(const Node& node, const char* name) {
    const auto index = node.schema().argumentIndexWithName(name);
    if (!index) return std::nullopt;
    return static_cast<size_t>(*index);
}

// The number in a constant argument; nullopt if the argument is computed or None.
std::optional<double> constant_number(const Node& node, const char* name) {
    const auto index = argument(node, name);
    if (!index) return std::nullopt;
    const auto value = torch::jit::toIValue(node.input(*index));
    if (!value) return std::nullopt;
    if (value->isDouble()) return value->toDouble();
    if (value->isInt()) return static_cast<double>(value->toInt());
    if (value->isBool()) return value->toBool() ? 1 : 0;
    return std::nullopt;
}

// Splits the parameter at input INDEX in the way that LIKE is split.
bool split_parameter(PlacementFlow& flow, Node& node, size_t index, const Placement& like) {
    const auto origin = flow.origin_of(node.input(index));
    if (!origin)
        return flow.obstruct(node, like.parameter,
                             "meets " + flow.describe(node.input(index)) + ", which is not split");
    Placement wanted = like;
    wanted.shard.dim = origin->dims.at(static_cast<size_t>(like.shard.dim));
    if (wanted.parameter < 0) wanted.parameter = origin->parameter;
    return flow.demand(node, {{origin->parameter, wanted}},
                       fmt::format("needs {} split too", flow.parameter_name(origin->parameter)));
}

// A layer whose inputs are split: each rank has a summand of its result.
bool row_product(PlacementFlow& flow, Node& node, const LinearForm& form) {
    const Placement x = flow.input(node, form.input);
    const Placement weight = flow.input(node, form.weight);
    Placement wanted = shard_of(x, form.weight_in);
    const bool fits = weight.is_shard() && weight.shard == wanted.shard;
    const auto decided = flow.origin_of(node.input(form.weight));
    if (!fits) {
        if (weight.is_shard() && weight.shard.dim != form.weight_in)
            return flow.obstruct(node, x.parameter,
                                 flow.parameter_name(decided->parameter) +
                                     " is split by its outputs, and so are the inputs");
        wanted.parameter = decided->parameter;
        return split_parameter(flow, node, form.weight, wanted);
    }
    for (const char* factor : {"alpha", "beta"})
        if (const auto index = argument(node, factor); index && constant_number(node, factor) != 1)
            return flow.obstruct(node, x.parameter, fmt::format("{} is not 1", factor));
    return flow.sum_output({EditKind::kSum, &node, 0, {}, 0}, form.bias);
}

// A layer whose outputs are split: each rank computes some features of the whole input.
bool column_product(PlacementFlow& flow, Node& node, const LinearForm& form) {
    const Placement weight = flow.input(node, form.weight);
    if (form.bias) {
        const Placement bias = flow.input(node, *form.bias);
        const Placement wanted = shard_of(weight, dims_of(flow, node.input(*form.bias)) - 1);
        if (!bias.same_place(wanted)) return split_parameter(flow, node, *form.bias, wanted);
    }
    flow.read_for_share(node, form.input);
    flow.place(node.output(), shard_of(weight, dims_of(flow, node.output()) - 1));
    return true;
}

bool linear_rule(PlacementFlow& flow, Node& node, const LinearForm& form) {
    const Placement weight = flow.input(node, form.weight);
    // A layer that is split between ranks works on all positions.
    const bool between = flow.position_split() == PositionSplit::kBetweenLayers;
    if (between && !weight.is_whole() && flow.input(node, form.input).is_positions())
        flow.gather_positions(node, form.input);
    const Placement x = flow.input(node, form.input);
    const int64_t last = dims_of(flow, node.input(form.input)) - 1;
    const bool by_outputs = weight.is_shard() && weight.shard.dim == 1 - form.weight_in;
    if (form.bias && flow.input(node, *form.bias).is_shard() && !by_outputs)
        return flow.obstruct(node, flow.input(node, *form.bias).parameter,
                             "its bias is split and its outputs are not");
    if (x.is_shard() && x.shard.dim == last) return row_product(flow, node, form);
    if (by_outputs) {
        if (x.is_shard())
            return flow.obstruct(node, x.parameter, "its inputs are split in another dimension");
        return column_product(flow, node, form);
    }
    if (weight.is_shard()) {  // a rule says row, and the input is whole
        if (x.is_shard())
            return flow.obstruct(node, x.parameter, "its inputs are split in another dimension");
        flow.read_for_share(node, form.input);
        flow.edit({EditKind::kShare, &node, form.input, shard_of(weight, last).shard, 0});
        return flow.sum_output({EditKind::kSum, &node, 0, {}, 0}, form.bias);
    }
    for (size_t i = 0; i < node.inputs().size(); ++i) flow.read_for_share(node, i);
    flow.place(node.output(), x.is_shard() ? x : copied());
    return true;
}

// [.., m, k] x [.., k, n] of activations: the split dimension must be one that both have in common,
// or m or n.
bool product_rule(PlacementFlow& flow, Node& node) {
    if (const auto form = flow.linear_form(node)) return linear_rule(flow, node, *form);
    if (node.kind() != c10::aten::matmul && node.kind() != c10::aten::bmm)
        return flow.obstruct(node, -1, "there is no rule for it with other operands");
    const int64_t out_dims = dims_of(flow, node.output());
    std::optional<Placement> split;
    for (size_t i = 0; i < 2; ++i) {
        const Placement operand = flow.input(node, i);
        if (!operand.is_shard()) continue;
        const int64_t dims = dims_of(flow, node.input(i));
        const int64_t from_end = dims - operand.shard.dim;
        if (from_end == (i == 0 ? 1 : 2))
            return flow.obstruct(node, operand.parameter, "sums over what is split");
        if (dims < 2 || dims_of(flow, node.input(1 - i)) < 2)
            return flow.obstruct(node, operand.parameter, "one of its operands is a vector");
        const Placement here = shard_of(operand, out_dims - from_end);
        if (split && !split->same_place(here))
            return flow.demand_blocks(node, split->parameter, here.shard.blocks,
                                      "its operands are split differently");
        split = here;
    }
    for (size_t i = 0; i < 2; ++i) {
        if (flow.input(node, i).is_shard()) continue;
        const int64_t dims = dims_of(flow, node.input(i));
        const int64_t from_end = split ? out_dims - split->shard.dim : 0;
        const int64_t dim = dims - from_end;
        const bool walks = split && from_end > 2 && dim >= 0 && flow.sizes(node.input(i))[dim] > 1;
        if (!walks) {
            flow.read_for_share(node, i);
        } else if (!flow.share_input(node, i, shard_of(*split, dim))) {
            return false;
        }
    }
    flow.place(node.output(), split ? *split : copied());
    return true;
}

// A mask [.., heads or 1, tokens, tokens] of attention whose heads are split.
bool attention_mask(PlacementFlow& flow, Node& node, int64_t query_heads) {
    const Value* mask = node.input(3);
    if (!flow.has_sizes(mask)) return true;
    const int64_t dim = dims_of(flow, mask) - 3;
    const bool per_head = dim >= 0 && flow.sizes(mask)[dim] > 1;
    const Placement here = flow.input(node, 3);
    if (here.is_shard() && !(per_head && here.shard.dim == dim))
        return flow.obstruct(node, here.parameter, "its mask is split, but not by heads");
    flow.read_for_share(node, 3);
    if (per_head && !here.is_shard())
        flow.edit({EditKind::kShare, &node, 3, {dim, {query_heads}}, 0});
    return true;
}

// Ulysses (arXiv:2309.14509): positions of all heads are exchanged for all positions of some heads,
// and back behind it.
bool exchange_rule(PlacementFlow& flow, Node& node) {
    const int64_t dims = dims_of(flow, node.input(0));
    const int64_t head_dim = dims - 3, position_dim = dims - 2;
    const auto heads_of = [&](size_t i) { return flow.sizes(node.input(i))[head_dim]; };
    if (head_dim < 0)
        return flow.obstruct(node, Placement::kPositions, "it has no dimension of heads");
    if (constant_number(node, "dropout_p") != 0)
        return flow.obstruct(node, Placement::kPositions,
                             "it draws dropout for all heads at once; give attention no dropout "
                             "of its own");
    if (heads_of(0) % flow.size() != 0)
        return flow.obstruct_indivisible(
            node, Placement::kPositions,
            fmt::format("its {} heads do not divide among {} ranks", heads_of(0), flow.size()));
    for (size_t i = 0; i < 3; ++i) {
        const Placement operand = flow.input(node, i);
        if (!operand.is_positions() || operand.shard.dim != position_dim ||
            operand.shard.blocks.size() != 1)
            return flow.obstruct(node, Placement::kPositions,
                                 "queries, keys and values are not split by the same positions");
        // Heads of keys that do not divide by the ranks are repeated as attention would repeat
        // them.
        if (heads_of(i) % flow.size() != 0)
            flow.edit({EditKind::kRepeat, &node, i, {head_dim, {}}, heads_of(0) / heads_of(i)});
        flow.edit({EditKind::kExchange, &node, i, {position_dim, operand.shard.blocks}, head_dim});
    }
    if (!attention_mask(flow, node, heads_of(0))) return false;
    Placement out = flow.input(node, 0);
    flow.edit({EditKind::kExchangeBack, &node, 0, {position_dim, out.shard.blocks}, head_dim});
    flow.place(node.output(), out);
    return true;
}

// Query, key, value [.., heads, tokens, width]: each rank computes some heads.
bool attention_rule(PlacementFlow& flow, Node& node) {
    if (flow.position_split() == PositionSplit::kEverywhere && flow.input(node, 0).is_positions())
        return exchange_rule(flow, node);
    std::optional<Placement> heads;
    const int64_t dims = dims_of(flow, node.input(0));
    const int64_t head_dim = dims - 3;
    for (size_t i = 0; i < 3; ++i) {
        const Placement operand = flow.input(node, i);
        if (!operand.is_shard()) continue;
        if (operand.shard.dim != head_dim)  // the width of a single head was split
            return flow.obstruct_indivisible(
                node, operand.parameter,
                fmt::format("dimension {} of {} is split, not the heads", operand.shard.dim, dims));
        if (!heads) heads = operand;
    }
    if (!heads) {
        for (size_t i = 0; i < node.inputs().size(); ++i) flow.read_for_share(node, i);
        flow.place(node.output(), copied());
        return true;
    }
    if (constant_number(node, "dropout_p") != 0)
        return flow.obstruct(node, heads->parameter,
                             "it draws dropout for all heads at once; give attention no dropout "
                             "of its own");
    const int64_t query_heads = flow.sizes(node.input(0))[head_dim];
    for (size_t i = 0; i < 3; ++i) {
        const Placement operand = flow.input(node, i);
        const int64_t count = flow.sizes(node.input(i))[head_dim];
        if (operand.is_shard()) {
            if (operand.shard.blocks.size() != 1)
                return flow.obstruct(node, operand.parameter, "its heads are of several blocks");
        } else if (operand.is_whole()) {
            // Keys are copied only if they cannot be split, so a split is asked for first.
            if (!flow.share_input(node, i, shard_of(*heads, head_dim))) return false;
        } else if (count == query_heads) {
            flow.edit({EditKind::kShare, &node, i, {head_dim, {count}}, 0});
        } else {
            flow.edit(
                {EditKind::kRepeatShare, &node, i, {head_dim, {query_heads}}, query_heads / count});
        }
    }
    if (!attention_mask(flow, node, query_heads)) return false;
    Placement out = shard_of(*heads, head_dim);
    out.shard.blocks = {query_heads};
    flow.place(node.output(), out);
    return true;
}

// A table that is whole: each rank looks up its positions if the indices are forward's tokens.
bool whole_table(PlacementFlow& flow, Node& node) {
    const bool everywhere = flow.position_split() == PositionSplit::kEverywhere;
    if (!everywhere || !PlacementFlow::is_argument(node.input(1))) {
        flow.place(node.output(), copied());
        return true;
    }
    const int64_t last = dims_of(flow, node.input(1)) - 1;
    if (last < 0 || flow.sizes(node.input(1)).back() != flow.positions())
        return flow.obstruct(node, Placement::kPositions,
                             fmt::format("its indices are not of {} positions", flow.positions()));
    Placement rows;
    rows.kind = Kind::kShard;
    rows.shard = {last, {flow.positions()}};
    rows.parameter = Placement::kPositions;
    flow.edit({EditKind::kShare, &node, 1, rows.shard, 0});
    flow.place(node.output(), rows);
    return true;
}

bool embedding_rule(PlacementFlow& flow, Node& node) {
    const Placement weight = flow.input(node, 0);
    const Placement indices = flow.input(node, 1);
    if (weight.is_copied() && !indices.is_shard()) return whole_table(flow, node);
    if (!weight.is_shard() || indices.is_shard())
        return flow.obstruct(node, std::max(weight.parameter, indices.parameter),
                             "its indices are split");
    if (weight.shard.dim != 0 || weight.shard.blocks.size() != 1)
        return flow.obstruct(node, weight.parameter, "its rows are not what is split");
    for (const char* flag : {"scale_grad_by_freq", "sparse"})
        if (constant_number(node, flag) != 0)
            return flow.obstruct(node, weight.parameter, fmt::format("it has {}", flag));
    return flow.sum_output({EditKind::kEmbedding, &node, 0, weight.shard, 0}, {});
}

// Each rank adds up the losses of its rows.
bool row_loss_rule(PlacementFlow& flow, Node& node) {
    const Placement logits = flow.input(node, 0);
    const auto refuse = [&](const char* why) {
        return flow.obstruct(node, Placement::kPositions, why);
    };
    if (logits.shard.dim != 0 || dims_of(flow, node.input(0)) != 2)
        return refuse("its rows are not what is split");
    if (flow.input(node, 1).is_shard() || dims_of(flow, node.input(1)) != 1)
        return refuse("its targets are split, or probabilities");
    if (!is_none(*node.input(2))) return refuse("it weighs its classes");
    if (constant_number(node, "reduction").value_or(0) == 0)
        return refuse("it gives a loss for each row");
    flow.edit({EditKind::kRowLoss, &node, 0, logits.shard, 0});
    return true;
}

bool cross_entropy_rule(PlacementFlow& flow, Node& node) {
    const Placement logits = flow.input(node, 0);
    if (flow.position_split() == PositionSplit::kEverywhere && logits.is_positions())
        return row_loss_rule(flow, node);
    if (!logits.is_shard() || flow.input(node, 1).is_shard())
        return flow.obstruct(node, logits.parameter, "its targets are not whole");
    if (logits.shard.dim != 1 || dims_of(flow, node.input(0)) != 2 ||
        logits.shard.blocks.size() != 1)
        return flow.obstruct(node, logits.parameter, "its classes are not what is split");
    if (dims_of(flow, node.input(1)) != 1)
        return flow.obstruct(node, logits.parameter, "its targets are probabilities");
    if (!is_none(*node.input(2)))
        return flow.obstruct(node, logits.parameter, "it weighs its classes");
    if (constant_number(node, "label_smoothing") != 0)
        return flow.obstruct(node, logits.parameter, "it smooths its labels");
    flow.edit({EditKind::kCrossEntropy, &node, 0, logits.shard, 0});
    return true;
}

// Reductions and norms pass a tensor that is split in a dimension that they do not reduce.
bool along_rule(PlacementFlow& flow, Node& node, const std::vector<int64_t>& dims, bool keeps) {
    const Placement x = flow.input(node, 0);
    for (size_t i = 1; i < node.inputs().size(); ++i) {
        if (flow.input(node, i).is_shard())
            return flow.obstruct(node, flow.input(node, i).parameter, "its weights are split");
        flow.read_for_share(node, i);
    }
    if (!x.is_shard()) {
        flow.read_for_share(node, 0);
        for (const Value* output : node.outputs())
            if (flow.has_sizes(output)) flow.place(output, copied());
        return true;
    }
    const int64_t count = dims_of(flow, node.input(0));
    int64_t before = 0;
    for (const int64_t dim : dims) {
        const int64_t at = (dim + count) % count;
        if (at == x.shard.dim)
            return flow.obstruct(node, x.parameter, "it needs all of what is split");
        before += at < x.shard.dim ? 1 : 0;
    }
    for (const Value* output : node.outputs())
        if (flow.has_sizes(output))
            flow.place(output, keeps ? x : shard_of(x, x.shard.dim - before));
    return true;
}

bool softmax_rule(PlacementFlow& flow, Node& node) {
    const auto dim = flow.integer(node.input(1));
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    return along_rule(flow, node, {*dim}, true);
}

// mean, sum, amax, …, with a list of dimensions, or one, or none for all.
bool reduction_rule(PlacementFlow& flow, Node& node) {
    std::vector<int64_t> dims;
    const auto index = argument(node, "dim");
    if (index) {
        const auto value = torch::jit::toIValue(node.input(*index));
        const Node* maker = node.input(*index)->node();
        if (value && value->isIntList()) {
            dims = value->toIntVector();
        } else if (value && value->isInt()) {
            dims = {value->toInt()};
        } else if (maker->kind() == c10::prim::ListConstruct) {
            for (const Value* element : maker->inputs()) {
                const auto dim = flow.integer(element);
                if (!dim) return flow.obstruct(node, -1, "its dimensions are not known");
                dims.push_back(*dim);
            }
        }
    }
    if (dims.empty())
        for (int64_t d = 0; d < dims_of(flow, node.input(0)); ++d) dims.push_back(d);
    const auto keeps = constant_number(node, "keepdim");
    if (index && !keeps) return flow.obstruct(node, -1, "keepdim is not a constant");
    return along_rule(flow, node, dims, keeps.value_or(0) != 0);
}

bool norm_rule(PlacementFlow& flow, Node& node) {
    const auto shape = argument(node, "normalized_shape");
    const Node* maker = node.input(*shape)->node();
    const auto constant = torch::jit::toIValue(node.input(*shape));
    const auto count =
        static_cast<int64_t>(constant ? constant->toIntVector().size() : maker->inputs().size());
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < count; ++d) dims.push_back(-1 - d);
    return along_rule(flow, node, dims, true);
}

// Operators that work element by element on tensors that broadcast against each other.
bool elementwise_rule(PlacementFlow& flow, Node& node) {
    const Value* output = node.output();
    if (!output->type()->isSubtypeOf(*c10::TensorType::get()))
        return flow.obstruct(node, flow.input(node, 0).parameter,
                             "there is no rule for it on lists of split tensors");
    const int64_t out_dims = dims_of(flow, output);
    const auto takes_part = [&](size_t i) { return flow.has_sizes(node.input(i)); };
    std::optional<Placement> split;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        const Placement operand = flow.input(node, i);
        if (!takes_part(i) || !operand.is_shard()) continue;
        const Placement here =
            shard_of(operand, operand.shard.dim + out_dims - dims_of(flow, node.input(i)));
        if (split && split->shard.dim != here.shard.dim)
            return flow.obstruct(node, here.parameter,
                                 "its operands are split in different "
                                 "dimensions");
        if (split && !split->same_place(here)) {
            const Placement& coarse =
                split->shard.blocks.size() < here.shard.blocks.size() ? *split : here;
            const Placement& fine =
                split->shard.blocks.size() < here.shard.blocks.size() ? here : *split;
            return flow.demand_blocks(node, coarse.parameter, fine.shard.blocks,
                                      "its operands are split differently");
        }
        if (!split) split = here;
    }
    const bool in_place = node.schema().is_mutable();
    if (in_place && !flow.input(node, 0).is_shard())
        return flow.obstruct(node, -1, "writes in place to what is not split");
    for (size_t i = 0; i < node.inputs().size(); ++i) {
        if (!takes_part(i) || flow.input(node, i).is_shard()) continue;
        const int64_t dim =
            split ? split->shard.dim - (out_dims - dims_of(flow, node.input(i))) : -1;
        const bool full = dim >= 0 && flow.sizes(node.input(i))[dim] > 1;
        if (!full) {
            flow.read_for_share(node, i);
            continue;
        }
        const Placement like = shard_of(*split, dim);
        const bool own = flow.input(node, i).is_whole() && flow.origin_of(node.input(i)) &&
                         flow.needs_gradient(node.input(i));
        if (own && !like.is_positions()) return split_parameter(flow, node, i, like);
        if (!flow.share_input(node, i, like)) return false;
    }
    flow.place(output, split ? *split : copied());
    return true;
}

// The output lies as the first tensor; the other tensors only give their dtype.
bool cast_rule(PlacementFlow& flow, Node& node) {
    flow.place(node.output(), flow.input(node, 0));
    return true;
}

bool dropout_rule(PlacementFlow& flow, Node& node) {
    const Placement x = flow.input(node, 0);
    const bool draws = constant_number(node, "p") != 0 && constant_number(node, "train") != 0;
    if (draws && !x.is_shard())
        return flow.obstruct(node, -1, "it draws for what every rank computes alone");
    if (draws && node.kind() == c10::aten::dropout_)
        return flow.obstruct(node, x.parameter, "it draws in place");
    if (draws) flow.edit({EditKind::kDropout, &node, 0, x.shard, 0});
    flow.place(node.output(), x);
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
               "aten::__and__",     "aten::__or__"},
              elementwise_rule);
    // These write their first input.
    rules.add({"aten::add_", "aten::div_", "aten::mul_", "aten::sub_", "aten::relu_", "aten::silu_",
               "aten::gelu_", "aten::sigmoid_", "aten::tanh_", "aten::masked_fill_", "aten::clamp_",
               "aten::leaky_relu_"},
              elementwise_rule);
    rules.add({"aten::to", "aten::type_as", "aten::_autocast_to_full_precision",
               "aten::_autocast_to_reduced_precision", "dslaunch::match_dtype"},
              cast_rule);
    rules.add({"aten::linear", "aten::addmm", "aten::matmul", "aten::mm", "aten::bmm"},
              product_rule);
    rules.add({"aten::scaled_dot_product_attention"}, attention_rule);
    rules.add({"aten::embedding"}, embedding_rule);
    rules.add({"aten::cross_entropy_loss"}, cross_entropy_rule);
    rules.add({"aten::softmax", "aten::log_softmax", "aten::cumsum"}, softmax_rule);
    rules.add({"aten::mean", "aten::sum", "aten::amax", "aten::amin"}, reduction_rule);
    rules.add({"aten::layer_norm", "aten::rms_norm"}, norm_rule);
    rules.add({"aten::dropout", "aten::dropout_"}, dropout_rule);
}

}  // namespace dslaunch::graph
