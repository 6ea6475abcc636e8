// Tensor parallelism as data: the rule of each parameter, the part of it that a rank holds, the
// collectives of a micro batch. graph/tensor fills it in from a model's graph; shard layouts and
// checkpoints can read it. No LibTorch, no shared state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/range.h"

namespace dslaunch::plan {

// The ways in which the ranks of a tensor group share a linear layer or an embedding.
enum class TensorRule {
    kColumn,      // outputs are split: each rank computes some of the features
    kRow,         // inputs are split: each rank computes a summand of all features
    kVocabulary,  // rows of an embedding, or classes of the loss
    kReplicated,  // every rank holds all of it
};
[[nodiscard]] std::string_view tensor_rule_name(TensorRule rule);

// A parameter's shares. Dimension `dim` consists of blocks in order (query, key and value of a
// fused projection), and every rank has its share of each block.
struct TensorShard {
    int64_t dim = 0;
    std::vector<int64_t> blocks;  // extents, whose sum is the extent of `dim`

    bool operator==(const TensorShard&) const = default;
};

// Returns the ranges of dimension SHARD.dim that rank PART.index of PART.parts holds, in order. The
// ranges of all ranks tile it, also if a block does not divide evenly.
[[nodiscard]] std::vector<Range> shard_ranges(const TensorShard& shard, PartOf part);
// Returns true if all ranks have equal shares of every block.
[[nodiscard]] bool divides_evenly(const TensorShard& shard, int size);

// A rank's gradient of a parameter after its backward.
enum class TensorGradient {
    kOwn,       // gradient of its share alone, complete
    kComplete,  // gradient of the whole parameter, the same on every rank
    kSummand,   // summand for the whole parameter; the sum over the tensor group is the gradient
};

struct TensorParameter {
    std::string name;
    std::vector<int64_t> sizes;  // whole
    bool trainable = true;
    TensorRule rule = TensorRule::kReplicated;
    TensorShard shard;  // set if rule is not kReplicated
    TensorGradient gradient = TensorGradient::kComplete;
    std::string why;        // "feeds aten::scaled_dot_product_attention"
    bool unproven = false;  // true: a layer that stays whole for the obstacle that WHY names
};

enum class TensorCollectiveKind {
    kCopy,    // forward nothing, backward a sum
    kReduce,  // forward a sum, backward nothing
    kGather,  // forward a concatenation, backward nothing
    kLoss,    // forward maxima and sums of the rows of a cross entropy, backward nothing
    // The kinds below are for positions.
    kReduceScatter,  // forward each rank's share of a sum, backward a concatenation
    kAllGather,      // forward a concatenation, backward the rank's share of a sum
    kScatter,        // forward nothing, backward a concatenation
    kExchange,       // forward and backward each rank's share of every other rank's share
    kRing,           // blocks of all ranks, one after the other; backward their gradients too
};
[[nodiscard]] std::string_view tensor_collective_name(TensorCollectiveKind kind);

struct TensorCollective {
    TensorCollectiveKind kind = TensorCollectiveKind::kReduce;
    std::string where;  // node, module path and source line
    Bytes forward;      // bytes of the tensors that are summed or gathered in one micro batch
    Bytes backward;
};

// The findings for a model, the same on every rank of the group.
struct TensorPlan {
    int size = 1;                               // ranks of the group
    std::vector<TensorParameter> parameters;    // all parameters of the model, in its order
    std::vector<TensorCollective> collectives;  // in the order of the forward pass

    [[nodiscard]] Bytes forward_bytes() const;
    [[nodiscard]] Bytes backward_bytes() const;
};

// The rules that a user gives: patterns of parameter names, `*` for any characters; of several that
// fit, the first one counts. The graph decides if no pattern fits.
struct TensorRules {
    int size = 1;
    // True if each rank computes its share of the positions between the layers that are split
    // (Megatron-LM, arXiv:2205.05198): norms, dropout and sums of residuals.
    bool share_positions = false;
    std::vector<std::pair<std::string, TensorRule>> patterns;
    bool strict = false;  // true: a model with a layer of attention, or one whose width does not
                          // divide, that cannot be split is refused
};

// Returns the rule named WORD: "column", "row", "vocabulary", "replicated". Throws Error{kConfig}
// that lists them.
[[nodiscard]] TensorRule parse_tensor_rule(std::string_view pattern, std::string_view word);

// Returns the rule for each of NAMES; nullopt if no pattern fits. Throws Error{kConfig} for a
// pattern that fits no name, with the nearest name.
[[nodiscard]] std::vector<std::optional<TensorRule>> match_tensor_rules(
    const TensorRules& rules, std::span<const std::string> names);

// Returns the layers that stay whole for an obstacle, equal ones in one line: "\n  whole on every
// rank: …" each; empty: no layer does.
[[nodiscard]] std::string unproven_text(const TensorPlan& plan);

// Returns tables of parameters (equal layers in one line), collectives and bytes, for people.
[[nodiscard]] std::string tensor_plan_text(const TensorPlan& plan);

}  // namespace dslaunch::plan
