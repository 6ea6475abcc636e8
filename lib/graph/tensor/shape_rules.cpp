// Rules of the operators that only move elements: views, permutations, slices, splits, lists.

#include <algorithm>
#include <numeric>

#include "graph/nodes/graph_nodes.h"
#include "graph/tensor/placement_rules.h"
#include "graph/tensor/rule_tools.h"

namespace dslaunch::graph {

namespace {

using EditKind = TensorEdit::Kind;
using Sizes = std::vector<int64_t>;

int64_t product(const Sizes& sizes, size_t begin, size_t end) {
    return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(begin),
                           sizes.begin() + static_cast<std::ptrdiff_t>(end), int64_t{1},
                           std::multiplies<>());
}

TensorPlacement shard_of(const TensorPlacement& like, int64_t dim, Sizes blocks) {
    TensorPlacement placement = like;
    placement.shard = {dim, std::move(blocks)};
    return placement;
}

bool is_constant(const Value& value) {
    return value.node()->kind() == prim::Constant;
}

// Dimensions of a view's input and output that contain the same elements: [in_begin, in_end) and
// [out_begin, out_end).
struct Group {
    size_t in_begin = 0, in_end = 0, out_begin = 0, out_end = 0;
};

// Returns the group that contains dimension DIM of IN, in a view that turns the sizes IN into OUT.
Group group_of(const Sizes& in, const Sizes& out, size_t dim) {
    Group group;
    while (true) {
        group.in_end = group.in_begin + 1;
        group.out_end = std::min(group.out_begin + 1, out.size());
        int64_t a = in[group.in_begin];
        int64_t b = product(out, group.out_begin, group.out_end);
        while (a != b) {
            if (a < b && group.in_end < in.size()) {
                a *= in[group.in_end++];
            } else if (group.out_end < out.size()) {
                b *= out[group.out_end++];
            } else {
                break;
            }
        }
        if (group.in_end > dim) return group;
        group.in_begin = group.in_end;
        group.out_begin = group.out_end;
    }
}

// Returns the placement of a view of X. Returns nothing if no dimension of OUT fits the split of X.
// A new dimension fits only if its blocks divide evenly among the ranks. If several dimensions fit,
// uses the innermost.
std::optional<TensorPlacement> viewed(const TensorPlacement& x, const Sizes& in, const Sizes& out,
                                      int size) {
    const auto dim = static_cast<size_t>(x.shard.dim);
    const Group group = group_of(in, out, dim);
    const int64_t outer = product(in, group.in_begin, dim);
    const int64_t inner = product(in, dim + 1, group.in_end);
    // A dimension that the view keeps may be split unevenly.
    for (size_t q = group.out_begin; q < group.out_end; ++q)
        if (out[q] == in[dim] && product(out, group.out_begin, q) == outer &&
            product(out, q + 1, group.out_end) == inner)
            return shard_of(x, static_cast<int64_t>(q), x.shard.blocks);
    // A batch of samples is flattened to rows: one block of positions for each sample.
    if (x.is_positions() && inner == 1 && outer > 1 && x.shard.blocks.size() == 1 &&
        group.out_end - group.out_begin == 1)
        return shard_of(x, static_cast<int64_t>(group.out_begin),
                        Sizes(static_cast<size_t>(outer), in[dim]));
    // All dimensions before the split dimension of IN must also come before the split dimension of
    // OUT. Otherwise each index of these dimensions would need its own block.
    for (size_t q = group.out_end; q-- > group.out_begin;) {
        const int64_t q_outer = product(out, group.out_begin, q);
        const int64_t q_inner = product(out, q + 1, group.out_end);
        if (outer > 1 && q_outer % outer != 0) continue;
        const int64_t parts = q_outer / outer;
        const auto count = static_cast<int64_t>(x.shard.blocks.size());
        if (parts == 0 || count % parts != 0) continue;
        const auto run = static_cast<size_t>(count / parts);
        Sizes blocks;
        bool fits = true;
        for (size_t b = 0; b < x.shard.blocks.size(); ++b) {
            const int64_t extent = x.shard.blocks[b] * inner;
            fits = fits && extent % q_inner == 0 && (extent / q_inner) % size == 0;
            fits = fits && (b < run || x.shard.blocks[b] == x.shard.blocks[b % run]);
            if (b < run) blocks.push_back(extent / q_inner);
        }
        const int64_t sum = std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
        if (fits && sum == out[q]) return shard_of(x, static_cast<int64_t>(q), blocks);
    }
    // A batch and its heads are flattened to one dimension: one block of heads for each sample.
    constexpr int64_t kBlocksMax = 4096;
    if (inner == 1 && outer > 1 && outer <= kBlocksMax && x.shard.blocks.size() == 1 &&
        in[dim] % size == 0 && group.out_end - group.out_begin == 1)
        return shard_of(x, static_cast<int64_t>(group.out_begin),
                        Sizes(static_cast<size_t>(outer), in[dim]));
    return std::nullopt;
}

std::string sizes_text(const Sizes& sizes, size_t begin, size_t end) {
    std::string text;
    for (size_t i = begin; i < end; ++i)
        text += (i > begin ? " x " : "") + std::to_string(sizes[i]);
    return text;
}

// Places a view. INDEX: the list argument with its sizes, or nothing if the view has no such
// argument. LIST_DIM: the dimension of OUT that the first size in the list belongs to.
bool view_to(FlowState& flow, Node& node, std::optional<size_t> index, int64_t list_dim) {
    const TensorPlacement x = flow.input(node, 0);
    if (!x.is_shard()) return pass_copied(flow, node);
    const Sizes& in = flow.graph().sizes(node.input(0));
    const Sizes& out = flow.graph().sizes(node.output());
    if (const auto made = viewed(x, in, out, flow.size())) {
        const int64_t entry = made->shard.dim - list_dim;
        const auto entries = static_cast<int64_t>(out.size());
        if (index && entry >= 0 && entry < entries)
            flow.edit({EditKind::kShape, &node, *index, {0, made->shard.blocks}, entry});
        flow.place(node.output(), *made);
        return true;
    }
    const Group group = group_of(in, out, static_cast<size_t>(x.shard.dim));
    const std::string reason =
        fmt::format("turns {} into {}, which cannot be divided evenly among {} ranks",
                    sizes_text(in, group.in_begin, group.in_end),
                    sizes_text(out, group.out_begin, group.out_end), flow.size());
    const int64_t extent = in[x.shard.dim];
    const bool front = group.in_begin == static_cast<size_t>(x.shard.dim);
    const int64_t pieces = group.out_begin < out.size() ? out[group.out_begin] : 1;
    if (front && x.shard.blocks.size() == 1 && pieces > 1 && extent % pieces == 0 &&
        group.out_end - group.out_begin > 1) {
        flow.demand_blocks(node, x.parameter, Sizes(static_cast<size_t>(pieces), extent / pieces),
                           reason);
        flow.mark_indivisible();
        return false;
    }
    return flow.obstruct_indivisible(node, x.parameter, reason);
}

bool view_rule(FlowState& flow, Node& node) {
    if (node.input(1)->type()->kind() != c10::TypeKind::ListType)
        return flow.obstruct(node, flow.input(node, 0).parameter,
                             "it views the tensor as another dtype");
    return view_to(flow, node, 1, 0);
}

bool flatten_rule(FlowState& flow, Node& node) {
    return view_to(flow, node, std::nullopt, 0);
}

// Places view_as and reshape_as. The second tensor, which gives the sizes, must be split in the
// same way as the result.
bool view_as_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0), like = flow.input(node, 1);
    if (!x.is_shard() && !like.is_shard()) return pass_copied(flow, node);
    const auto made = x.is_shard() ? viewed(x, flow.graph().sizes(node.input(0)),
                                            flow.graph().sizes(node.output()), flow.size())
                                   : std::nullopt;
    if (!made || !made->is_placed_like(like))
        return flow.obstruct(node, std::max(x.parameter, like.parameter),
                             "it takes its sizes from a tensor that is split differently");
    flow.place(node.output(), *made);
    return true;
}

bool unflatten_rule(FlowState& flow, Node& node) {
    const auto dims = dims_of(flow, node.input(0));
    const auto dim = dim_argument(flow, node, 1, dims);
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    const TensorPlacement x = flow.input(node, 0);
    const bool here = x.is_shard() && x.shard.dim == *dim;
    return view_to(flow, node, here ? std::optional<size_t>(2) : std::nullopt, *dim);
}

// Places an operator that reorders dimensions. FROM: the input's dimension for each dimension of
// the output.
bool reorder(FlowState& flow, Node& node, const Sizes& from) {
    const TensorPlacement x = flow.input(node, 0);
    if (!x.is_shard()) return pass_copied(flow, node);
    const auto found = std::find(from.begin(), from.end(), x.shard.dim);
    if (found == from.end())
        return flow.obstruct(node, x.parameter, "it drops the split dimension");
    flow.place(node.output(), shard_of(x, found - from.begin(), x.shard.blocks));
    return true;
}

bool transpose_rule(FlowState& flow, Node& node) {
    Sizes from(flow.graph().sizes(node.input(0)).size());
    std::iota(from.begin(), from.end(), int64_t{0});
    if (node.kind() == aten::transpose) {
        const auto dims = static_cast<int64_t>(from.size());
        const auto a = dim_argument(flow, node, 1, dims), b = dim_argument(flow, node, 2, dims);
        if (!a || !b) return flow.obstruct(node, -1, "its dimensions are not known");
        std::swap(from[*a], from[*b]);
    } else {
        std::reverse(from.begin(), from.end());
    }
    return reorder(flow, node, from);
}

bool permute_rule(FlowState& flow, Node& node) {
    auto from = int_list(flow, node.input(1));
    if (!from) return flow.obstruct(node, -1, "its dimensions are not known");
    for (int64_t& dim : *from)
        dim = (dim + static_cast<int64_t>(from->size())) % static_cast<int64_t>(from->size());
    return reorder(flow, node, *from);
}

// Places squeeze and unsqueeze: a dimension of size one is removed or added, at DIM of the longer
// shape.
bool squeeze_rule(FlowState& flow, Node& node) {
    const auto in = dims_of(flow, node.input(0));
    const auto out = dims_of(flow, node.output());
    const bool adds = node.kind() == aten::unsqueeze;
    if (!adds && node.inputs().size() < 2)
        return flow.obstruct(node, flow.input(node, 0).parameter, "its dimensions are not known");
    const auto dim = dim_argument(flow, node, 1, adds ? out : in);
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    Sizes from;
    for (int64_t d = 0; d < in; ++d)
        if (adds || in == out || d != *dim) from.push_back(d);
    if (adds) from.insert(from.begin() + *dim, -1);
    return reorder(flow, node, from);
}

// Places conversions between pairs of numbers and complex numbers.
bool complex_rule(FlowState& flow, Node& node) {
    Sizes from(flow.graph().sizes(node.output()).size());
    std::iota(from.begin(), from.end(), int64_t{0});
    if (node.kind() == Symbol::fromQualString("aten::view_as_real")) from.back() = -1;
    return reorder(flow, node, from);
}

// Places repetitions of a tensor. If the split dimension is repeated, its blocks are repeated.
bool repeat_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0);
    if (!x.is_shard()) return pass_copied(flow, node);
    const auto times = int_list(flow, node.input(1));
    const Sizes& in = flow.graph().sizes(node.input(0));
    if (!times) return flow.obstruct(node, x.parameter, "its number of repetitions is not known");
    const auto dim = static_cast<size_t>(x.shard.dim) + times->size() - in.size();
    Sizes blocks;
    for (int64_t i = 0; i < (*times)[dim]; ++i)
        blocks.insert(blocks.end(), x.shard.blocks.begin(), x.shard.blocks.end());
    flow.place(node.output(), shard_of(x, static_cast<int64_t>(dim), blocks));
    return true;
}

// Places padding of dimensions that are not split.
bool pad_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0);
    if (!x.is_shard()) return pass_copied(flow, node);
    const auto pads = int_list(flow, node.input(1));
    if (!pads) return flow.obstruct(node, x.parameter, "its padding is not known");
    const auto from_end = dims_of(flow, node.input(0)) - 1 - x.shard.dim;
    for (size_t i = 0; i < 2; ++i) {
        const auto at = static_cast<size_t>(2 * from_end) + i;
        if (at < pads->size() && (*pads)[at] != 0)
            return flow.obstruct(node, x.parameter, "it pads the split dimension");
    }
    flow.place(node.output(), x);
    return true;
}

bool expand_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0);
    if (!x.is_shard()) return pass_copied(flow, node);
    const int64_t added = dims_of(flow, node.output()) - dims_of(flow, node.input(0));
    const TensorPlacement out = shard_of(x, x.shard.dim + added, x.shard.blocks);
    flow.edit({EditKind::kShape, &node, 1, {0, out.shard.blocks}, out.shard.dim});
    flow.place(node.output(), out);
    return true;
}

// Returns the blocks of X inside [begin, end) of its dimension; nothing if a block is only partly
// inside.
std::optional<Sizes> blocks_between(const TensorPlacement& x, int64_t begin, int64_t end) {
    Sizes inside;
    int64_t offset = 0;
    for (const int64_t block : x.shard.blocks) {
        const bool in = offset >= begin && offset + block <= end;
        const bool out = offset + block <= begin || offset >= end;
        if (!in && !out) return std::nullopt;
        if (in) inside.push_back(block);
        offset += block;
    }
    return inside;
}

// Asks for a split of X's parameter with block borders at BORDERS, which are offsets in X's
// dimension.
bool demand_borders(FlowState& flow, Node& node, const TensorPlacement& x, Sizes borders) {
    const std::string reason = "it takes only a part of the split dimension";
    const int64_t extent =
        std::accumulate(x.shard.blocks.begin(), x.shard.blocks.end(), int64_t{0});
    const auto decided = flow.decisions().parameters.find(x.parameter);
    if (decided == flow.decisions().parameters.end())
        return flow.obstruct(node, x.parameter, reason);
    const Sizes& now = decided->second.shard.blocks;
    const int64_t whole = std::accumulate(now.begin(), now.end(), int64_t{0});
    if (whole % extent != 0) return flow.obstruct(node, x.parameter, reason);
    for (int64_t& border : borders) border *= whole / extent;
    int64_t offset = 0;
    for (const int64_t block : now) borders.push_back(offset += block);
    std::sort(borders.begin(), borders.end());
    Sizes blocks;
    int64_t last = 0;
    for (const int64_t border : borders) {
        if (border > last && border <= whole) blocks.push_back(border - last);
        last = std::max(last, border);
    }
    return flow.demand_blocks(node, x.parameter, blocks, reason);
}

// Returns true if the slice takes every n-th element of the whole split dimension, where n > 1, and
// each rank can take such elements from its own share. For this, the length of a share must be a
// multiple of n.
bool takes_each(FlowState& flow, Node& node, const TensorPlacement& x) {
    const int64_t extent = flow.graph().sizes(node.input(0))[static_cast<size_t>(x.shard.dim)];
    const int64_t step = flow.graph().integer(node.input(4)).value_or(1);
    const int64_t begin = flow.graph().integer(node.input(2)).value_or(0);
    return step > 1 && begin >= 0 && begin < step && x.shard.blocks.size() == 1 &&
           extent % (flow.size() * step) == 0 &&
           flow.graph().integer(node.input(3)).value_or(extent) >= extent;
}

bool slice_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0);
    if (!x.is_shard()) return pass_copied(flow, node);
    const Sizes& in = flow.graph().sizes(node.input(0));
    const auto dim = dim_argument(flow, node, 1, static_cast<int64_t>(in.size()));
    if (!dim) return flow.obstruct(node, x.parameter, "its dimension is not known");
    const int64_t extent = in[*dim];
    const Sizes& out = flow.graph().sizes(node.output());
    const bool is_narrow = node.kind() == aten::narrow;
    const bool all = out[*dim] == extent;
    const auto begin = flow.graph().integer(node.input(2));
    if (*dim != x.shard.dim) {
        flow.place(node.output(), x);
        return true;
    }
    if (all && !is_narrow) {  // [0:end] with the whole's end also takes all of a share
        flow.place(node.output(), x);
        return true;
    }
    const bool constant = is_constant(*node.input(2)) && is_constant(*node.input(3));
    const auto last = flow.graph().integer(node.input(3));
    if (constant && !is_narrow && takes_each(flow, node, x)) {
        flow.place(node.output(), shard_of(x, *dim, {out[*dim]}));
        return true;
    }
    if (!constant || (!is_narrow && flow.graph().integer(node.input(4)) != 1))
        return flow.obstruct(node, x.parameter, "it takes only a part of the split dimension");
    const int64_t from = begin ? (*begin < 0 ? *begin + extent : *begin) : 0;
    int64_t to = is_narrow ? from + *last : last.value_or(extent);
    if (to < 0) to += extent;
    to = std::min(to, extent);
    const auto inside = blocks_between(x, from, to);
    if (!inside) return demand_borders(flow, node, x, {from, to});
    if (from % flow.size() != 0 || to % flow.size() != 0)
        return flow.obstruct_indivisible(
            node, x.parameter, "it takes a part that cannot be divided evenly among the ranks");
    flow.edit({EditKind::kDivide, &node, 2, {}, from / flow.size()});
    flow.edit({EditKind::kDivide, &node, 3, {}, (is_narrow ? to - from : to) / flow.size()});
    flow.place(node.output(), shard_of(x, x.shard.dim, *inside));
    return true;
}

bool select_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0);
    if (!x.is_shard()) return pass_copied(flow, node);
    const auto dims = dims_of(flow, node.input(0));
    const auto dim = dim_argument(flow, node, 1, dims);
    if (!dim) return flow.obstruct(node, x.parameter, "its dimension is not known");
    if (*dim == x.shard.dim) {
        Sizes borders;
        for (int64_t i = 1; i < flow.graph().sizes(node.input(0))[*dim]; ++i) borders.push_back(i);
        return demand_borders(flow, node, x, borders);
    }
    flow.place(node.output(),
               shard_of(x, x.shard.dim - (*dim < x.shard.dim ? 1 : 0), x.shard.blocks));
    return true;
}

// Places operators that return a list of tensors: split, split_with_sizes, chunk, unbind.
bool split_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0);
    const bool unbinds = node.kind() == aten::unbind;
    const auto dims = dims_of(flow, node.input(0));
    const auto dim = dim_argument(flow, node, unbinds ? 1 : 2, dims);
    if (!dim) return flow.obstruct(node, x.parameter, "its dimension is not known");
    if (!flow.graph().has_sizes(node.output()))
        return flow.obstruct(node, x.parameter, "its parts are not known");
    std::vector<TensorPlacement> parts;
    Sizes borders;
    bool fits = true;
    int64_t offset = 0;
    const size_t count = flow.graph().list_size(node.output());
    for (size_t i = 0; i < count; ++i) {
        TensorPlacement part = x;
        if (x.is_shard() && *dim != x.shard.dim && unbinds && *dim < x.shard.dim)
            part.shard.dim -= 1;
        if (x.is_shard() && *dim == x.shard.dim) {
            const int64_t extent = unbinds ? 1 : flow.graph().sizes(node.output(), i)[*dim];
            const auto inside = blocks_between(x, offset, offset + extent);
            fits = fits && !unbinds && inside;
            if (inside) part.shard.blocks = *inside;
            offset += extent;
            borders.push_back(offset);
        }
        parts.push_back(std::move(part));
    }
    if (!fits) return demand_borders(flow, node, x, borders);
    if (x.is_shard() && *dim == x.shard.dim && node.kind() != aten::chunk)
        flow.edit({EditKind::kDivide, &node, 1, x.shard, -1});
    const bool even = std::all_of(borders.begin(), borders.end(), [&](const int64_t& border) {
        return border == (&border - borders.data() + 1) * borders.front();
    });
    if (node.kind() == aten::chunk && !even)
        return flow.obstruct(node, x.parameter, "its parts have different sizes");
    flow.place_list(node.output(), std::move(parts));
    return true;
}

bool list_construct_rule(FlowState& flow, Node& node) {
    std::vector<TensorPlacement> parts;
    for (size_t i = 0; i < node.inputs().size(); ++i) parts.push_back(flow.input(node, i));
    flow.place_list(node.output(), std::move(parts));
    return true;
}

bool list_unpack_rule(FlowState& flow, Node& node) {
    const std::vector<TensorPlacement> parts = flow.list_of(node.input(0));
    for (size_t i = 0; i < std::min(parts.size(), node.outputs().size()); ++i)
        flow.place(node.output(i), parts[i]);
    return true;
}

bool list_item_rule(FlowState& flow, Node& node) {
    const std::vector<TensorPlacement> parts = flow.list_of(node.input(0));
    auto index = flow.graph().integer(node.input(1));
    if (!index || !is_constant(*node.input(1)))
        return flow.obstruct(node, -1, "which part it takes is not known");
    if (*index < 0) *index += static_cast<int64_t>(parts.size());
    flow.place(node.output(), parts.at(static_cast<size_t>(*index)));
    return true;
}

// Places operators that join tensors which are split in the same way. Empty vectors, such as an
// empty cache of keys, add nothing.
bool join_rule(FlowState& flow, Node& node) {
    Node* const list = node.input(0)->node();
    const std::vector<TensorPlacement> parts = flow.list_of(node.input(0));
    const bool stacks = node.kind() == aten::stack;
    const auto dims = dims_of(flow, node.output());
    const auto dim = dim_argument(flow, node, 1, dims);
    if (!dim) return flow.obstruct(node, -1, "its dimension is not known");
    const auto shard = std::ranges::find_if(parts, &TensorPlacement::is_shard);
    const bool is_split = shard != parts.end();
    const bool along = is_split && !stacks && shard->shard.dim == *dim;
    TensorPlacement out = is_split ? *shard : TensorPlacement::copied();
    Sizes blocks;
    for (size_t i = 0; i < parts.size(); ++i) {
        const bool is_empty = flow.graph().sizes(node.input(0), i) == Sizes{0};
        if (is_empty && parts.size() > 1) continue;
        const bool fits = parts[i].is_shard() && parts[i].shard.dim == out.shard.dim;
        if (fits && (along || parts[i].is_placed_like(out))) {
            blocks.insert(blocks.end(), parts[i].shard.blocks.begin(), parts[i].shard.blocks.end());
        } else if (parts[i].is_shard() || along || list->kind() != prim::ListConstruct) {
            return flow.obstruct(node, std::max(parts[i].parameter, out.parameter),
                                 "it joins tensors that are split differently");
        } else if (!is_split) {
            flow.read_for_share(*list, i);
        } else if (!flow.share_input(*list, i, out)) {
            return false;
        }
    }
    if (along) out.shard.blocks = blocks;
    if (is_split && stacks && *dim <= out.shard.dim) out.shard.dim += 1;
    flow.place(node.output(), out);
    return true;
}

bool repeat_interleave_rule(FlowState& flow, Node& node) {
    TensorPlacement x = flow.input(node, 0);
    const auto repeats = flow.graph().integer(node.input(1));
    const Sizes& in = flow.graph().sizes(node.input(0));
    const auto dim = dim_argument(flow, node, 2, static_cast<int64_t>(in.size()));
    if (!repeats || !dim) return flow.obstruct(node, x.parameter, "its dimension is not known");
    if (!x.is_shard()) return pass_copied(flow, node);
    if (node.inputs().size() > 3 && flow.graph().integer(node.input(3)))
        return flow.obstruct(node, x.parameter, "its output_size is given, which is not supported");
    if (x.shard.dim == *dim)
        for (int64_t& block : x.shard.blocks) block *= *repeats;
    flow.place(node.output(), x);
    return true;
}

// Makes size(x, dim) and size(x) return the sizes of the whole tensor.
bool size_rule(FlowState& flow, Node& node) {
    const TensorPlacement x = flow.input(node, 0);
    if (!x.is_shard()) return true;
    if (node.inputs().size() == 1) {
        flow.edit({EditKind::kExtent, &node, 0, x.shard, x.shard.dim});
        return true;
    }
    const auto dims = dims_of(flow, node.input(0));
    const auto dim = dim_argument(flow, node, 1, dims);
    if (!dim) return flow.obstruct(node, x.parameter, "its dimension is not known");
    if (*dim == x.shard.dim) flow.edit({EditKind::kExtent, &node, 0, x.shard, -1});
    return true;
}

// Places operators whose result is the same for every rank's share.
bool same_everywhere_rule(FlowState& /*flow*/, Node& /*node*/) {
    return true;
}

}  // namespace

void add_shape_rules(PlacementRules& rules) {
    rules.add({"aten::view", "aten::reshape"}, view_rule);
    rules.add({"aten::flatten"}, flatten_rule);
    rules.add({"aten::unflatten"}, unflatten_rule);
    rules.add({"aten::transpose", "aten::t", "aten::numpy_T"}, transpose_rule);
    rules.add({"aten::permute"}, permute_rule);
    rules.add({"aten::view_as", "aten::reshape_as"}, view_as_rule);
    rules.add({"aten::view_as_complex", "aten::view_as_real"}, complex_rule);
    rules.add({"aten::repeat"}, repeat_rule);
    rules.add({"aten::pad", "aten::constant_pad_nd"}, pad_rule);
    rules.add({"aten::unsqueeze", "aten::squeeze"}, squeeze_rule);
    rules.add({"aten::expand"}, expand_rule);
    rules.add({"aten::slice", "aten::narrow"}, slice_rule);
    rules.add({"aten::select"}, select_rule);
    rules.add({"aten::split", "aten::split_with_sizes", "aten::chunk", "aten::unbind"}, split_rule);
    rules.add({"prim::ListConstruct"}, list_construct_rule);
    rules.add({"prim::ListUnpack"}, list_unpack_rule);
    rules.add({"aten::__getitem__"}, list_item_rule);
    rules.add({"aten::cat", "aten::concat", "aten::stack"}, join_rule);
    rules.add({"aten::repeat_interleave"}, repeat_interleave_rule);
    rules.add({"aten::size"}, size_rule);
    rules.add({"aten::new_zeros", "aten::new_empty", "aten::new_ones", "aten::new_full"},
              same_everywhere_rule);
    rules.add({"prim::device", "prim::dtype", "aten::dim", "prim::layout",
               "aten::is_floating_point", "prim::is_cuda"},
              same_everywhere_rule);
}

}  // namespace dslaunch::graph
