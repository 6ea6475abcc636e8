// Rules of attention. Ranks share its heads; or, if they share positions, they exchange positions
// for heads, move keys around the ranks, or gather keys.
#include <torch/csrc/jit/ir/constants.h>

#include <string>

#include "base/text.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/tensor/placement_rules.h"
#include "graph/tensor/rule_tools.h"

namespace dslaunch::graph {

namespace {

using EditKind = TensorEdit::Kind;

// Places the mask [.., heads or 1, tokens, tokens] of an attention whose heads are split.
bool attention_mask(FlowState& flow, Node& node, int64_t query_heads) {
    const Value* mask = node.input(3);
    if (!flow.graph().has_sizes(mask)) return true;
    const int64_t dim = dims_of(flow, mask) - 3;
    const bool per_head = dim >= 0 && flow.graph().sizes(mask)[dim] > 1;
    const TensorPlacement here = flow.input(node, 3);
    if (here.is_shard() && !(per_head && here.shard.dim == dim))
        return flow.obstruct(node, here.parameter, "its mask is split, but not by heads");
    flow.read_for_share(node, 3);
    if (per_head && !here.is_shard())
        flow.edit({EditKind::kShare, &node, 3, {dim, {query_heads}}, 0});
    return true;
}

// Splits an attention mask [.., queries or 1, keys] by rows, so that a rank has the rows for its
// own queries. QUERY: the split of the queries.
bool mask_of_queries(FlowState& flow, Node& node, const TensorPlacement& query) {
    if (!flow.graph().has_sizes(node.input(3))) return true;
    const int64_t rows = dims_of(flow, node.input(3)) - 2;
    const TensorPlacement mask = flow.input(node, 3);
    if (mask.is_shard() && mask.shard.dim != rows)
        return flow.obstruct(node, TensorPlacement::kPositions,
                             "its mask is split, but not by rows");
    const bool has_rows = rows >= 0 && flow.graph().sizes(node.input(3))[rows] > 1;
    if (!mask.is_shard()) flow.read_for_share(node, 3);
    if (!mask.is_shard() && has_rows)
        flow.edit({EditKind::kShare, &node, 3, {rows, query.shard.blocks}, 0});
    return true;
}

// Returns true if ring attention is possible: keys and values are split by the same positions as
// the queries, and their shapes fit.
bool fits_ring(FlowState& flow, const Node& node) {
    const std::vector<int64_t>& query = flow.graph().sizes(node.input(0));
    const auto dims = static_cast<int64_t>(query.size());
    const TensorPlacement& place = flow.input(node, 0);
    if ((dims != 3 && dims != 4) || constant_number(node, "dropout_p") != 0) return false;
    for (size_t i = 0; i < 3; ++i) {
        const std::vector<int64_t>& sizes = flow.graph().sizes(node.input(i));
        const TensorPlacement& here = flow.input(node, i);
        if (!here.is_positions() || !here.is_placed_like(place) || here.shard.dim != dims - 2 ||
            here.shard.blocks.size() != 1 || std::ssize(sizes) != dims ||
            sizes.front() != (dims == 4 ? query.front() : sizes.front()) ||
            query[dims - 3] % sizes[dims - 3] != 0)
            return false;
    }
    const Value* const mask = node.input(3);
    return !flow.graph().has_sizes(mask) ||
           (dims_of(flow, mask) <= 4 && !flow.graph().needs_gradient(mask));
}

// Places attention whose queries are split by positions: the queries of each rank see all keys.
// Used if the heads do not divide evenly among the ranks, or if the keys are not placed like their
// queries. Keys and values move around the ranks, or are gathered.
bool all_keys_rule(FlowState& flow, Node& node) {
    const TensorPlacement query = flow.input(node, 0);
    const int64_t position_dim = dims_of(flow, node.input(0)) - 2;
    if (fits_ring(flow, node)) {
        if (!mask_of_queries(flow, node, query)) return false;
        flow.edit({EditKind::kRing, &node, 0, query.shard, 0});
        flow.place(node.output(), query);
        return true;
    }
    for (size_t i = 1; i < 3; ++i) {
        if (flow.input(node, i).is_positions()) flow.gather_positions(node, i);
        flow.read_for_share(node, i);
    }
    if (!query.is_positions()) return pass_copied(flow, node);
    if (query.shard.dim != position_dim || query.shard.blocks.size() != 1)
        return flow.obstruct(node, TensorPlacement::kPositions,
                             "its queries are not split by positions");
    if (!mask_of_queries(flow, node, query)) return false;
    flow.edit({EditKind::kAttention, &node, 0, query.shard, 0});
    flow.place(node.output(), query);
    return true;
}

// Places attention as in Ulysses (arXiv:2309.14509): exchanges some positions of all heads for all
// positions of some heads, and exchanges them back after the attention.
bool exchange_rule(FlowState& flow, Node& node) {
    const int64_t dims = dims_of(flow, node.input(0));
    const int64_t head_dim = dims - 3, position_dim = dims - 2;
    const auto heads_of = [&](size_t i) { return flow.graph().sizes(node.input(i))[head_dim]; };
    if (!constant_number(node, "dropout_p"))
        return flow.obstruct(node, TensorPlacement::kPositions, "its dropout is not a constant");
    if (head_dim < 0 || heads_of(0) % flow.size() != 0) return all_keys_rule(flow, node);
    for (size_t i = 0; i < 3; ++i) {
        const TensorPlacement operand = flow.input(node, i);
        if (!operand.is_positions() || operand.shard.dim != position_dim ||
            operand.shard.blocks.size() != 1)
            return all_keys_rule(flow, node);
    }
    for (size_t i = 0; i < 3; ++i) {
        // If the heads of keys do not divide evenly among the ranks, they are repeated as attention
        // itself would repeat them.
        if (heads_of(i) % flow.size() != 0)
            flow.edit({EditKind::kRepeat, &node, i, {head_dim, {}}, heads_of(0) / heads_of(i)});
        flow.edit({EditKind::kExchange,
                   &node,
                   i,
                   {position_dim, flow.input(node, i).shard.blocks},
                   head_dim});
    }
    if (!attention_mask(flow, node, heads_of(0))) return false;
    if (constant_number(node, "dropout_p") != 0)
        flow.edit({EditKind::kAttention, &node, 0, {head_dim, {heads_of(0)}}, 0});
    TensorPlacement out = flow.input(node, 0);
    flow.edit({EditKind::kExchangeBack, &node, 0, {position_dim, out.shard.blocks}, head_dim});
    flow.place(node.output(), out);
    return true;
}

// Places attention with query, key, value [.., heads, tokens, width]: each rank computes some
// heads.
bool attention_rule(FlowState& flow, Node& node) {
    if (flow.position_split() == PositionSplit::kEverywhere) return exchange_rule(flow, node);
    std::optional<TensorPlacement> heads;
    const int64_t dims = dims_of(flow, node.input(0));
    const int64_t head_dim = dims - 3;
    for (size_t i = 0; i < 3; ++i) {
        const TensorPlacement operand = flow.input(node, i);
        if (!operand.is_shard()) continue;
        if (operand.shard.dim != head_dim)  // the width of a single head was split
            return flow.obstruct_indivisible(
                node, operand.parameter,
                fmt::format("dimension {} of {} is split instead of the heads", operand.shard.dim,
                            dims));
        if (!heads) heads = operand;
    }
    if (!heads) return pass_copied(flow, node);
    if (!constant_number(node, "dropout_p"))
        return flow.obstruct(node, heads->parameter, "its dropout is not a constant");
    const int64_t query_heads = flow.graph().sizes(node.input(0))[head_dim];
    for (size_t i = 0; i < 3; ++i) {
        const TensorPlacement operand = flow.input(node, i);
        const int64_t count = flow.graph().sizes(node.input(i))[head_dim];
        if (operand.is_shard()) {
            if (operand.shard.blocks.size() != 1)
                return flow.obstruct(node, operand.parameter,
                                     "its heads come from several blocks of a split tensor");
        } else if (operand.is_whole()) {
            // Keys are copied only if they cannot be split, so this asks for a split first.
            if (!flow.share_input(node, i, moved_shard(*heads, head_dim))) return false;
        } else if (count == query_heads) {
            flow.edit({EditKind::kShare, &node, i, {head_dim, {count}}, 0});
        } else {
            flow.edit(
                {EditKind::kRepeatShare, &node, i, {head_dim, {query_heads}}, query_heads / count});
        }
    }
    if (!attention_mask(flow, node, query_heads)) return false;
    TensorPlacement out = moved_shard(*heads, head_dim);
    out.shard.blocks = {query_heads};
    // Every rank draws the dropout of all heads and uses the part of its own heads.
    if (constant_number(node, "dropout_p") != 0)
        flow.edit({EditKind::kAttention, &node, 0, out.shard, 0});
    flow.place(node.output(), out);
    return true;
}

}  // namespace

void add_attention_rules(PlacementRules& rules) {
    rules.add({"aten::scaled_dot_product_attention"}, attention_rule);
}

}  // namespace dslaunch::graph
