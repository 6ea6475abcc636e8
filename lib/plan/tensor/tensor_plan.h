// Tensor parallelism as data: the rule of each parameter, the part of it that a rank holds, and the
// collectives of a micro batch. graph/tensor fills it in from a model's graph; shard layouts and
// checkpoints can read it. No LibTorch, no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/range.h"

namespace dslaunch::plan {

// The ways in which the ranks of a tensor group share a linear layer or an embedding.
enum class TensorRule {
    kColumn,      // outputs are split: each rank computes some of the features
    kRow,         // inputs are split: each rank computes a summand of every feature
    kVocabulary,  // rows of an embedding, or classes of the loss, are split
    kReplicated,  // every rank holds all of it
};
// Returns the word that parse_tensor_rule() accepts for RULE.
[[nodiscard]] std::string_view tensor_rule_name(TensorRule rule);

// The division of a parameter into shares. Dimension `dim` consists of consecutive blocks (such as
// query, key and value of a fused projection), and every rank holds its share of each block.
struct TensorShard {
    int64_t dim = 0;
    std::vector<int64_t> blocks;  // extents, whose sum is the extent of `dim`

    bool operator==(const TensorShard&) const = default;
};

// Returns the ranges of dimension SHARD.dim that rank PART.index of PART.parts holds, in order. The
// ranges of all ranks tile the dimension, even if a block does not divide evenly.
[[nodiscard]] std::vector<Range> shard_ranges(const TensorShard& shard, PartOf part);
// Returns true if all ranks have equal shares of every block.
[[nodiscard]] bool divides_evenly(const TensorShard& shard, int size);

// The form in which a rank has a parameter's gradient after its backward.
enum class TensorGradient {
    kOwn,       // gradient of its share alone, complete
    kComplete,  // gradient of the whole parameter, the same on every rank
    kSummand,   // summand for the whole parameter; the sum over the tensor group is the gradient
};

// The division of one parameter, and the reason for it.
struct TensorParameter {
    std::string name;
    std::vector<int64_t> sizes;  // sizes of the whole parameter
    bool trainable = true;
    TensorRule rule = TensorRule::kReplicated;
    TensorShard shard;  // set if rule is not kReplicated
    TensorGradient gradient = TensorGradient::kComplete;
    std::string why;        // "feeds aten::scaled_dot_product_attention"
    bool unproven = false;  // true: the layer stays whole because of the obstacle in WHY
};

// The kinds of communication within a tensor group.
enum class TensorCollectiveKind {
    kCopy,    // in forward nothing; in backward a sum
    kReduce,  // in forward a sum; in backward nothing
    kGather,  // in forward a concatenation; in backward nothing
    kLoss,    // in forward the maxima and sums of a cross entropy's rows; in backward nothing
    // The kinds below are used if ranks share the positions of a sequence.
    kReduceScatter,  // in forward each rank's share of a sum; in backward a concatenation
    kAllGather,      // in forward a concatenation; in backward the rank's share of a sum
    kScatter,        // in forward nothing; in backward a concatenation
    kExchange,       // an all-to-all, in forward and in backward
    kRing,           // blocks go from rank to rank in a ring; in backward their gradients too
};
// Returns the name as tensor_plan_text() prints it.
[[nodiscard]] std::string_view tensor_collective_name(TensorCollectiveKind kind);

// One communication in each micro batch.
struct TensorCollective {
    TensorCollectiveKind kind = TensorCollectiveKind::kReduce;
    std::string where;  // node, module path and source line
    Bytes forward;      // bytes of the tensors that are summed or gathered in one micro batch
    Bytes backward;
};

// The tensor-parallel plan of a model, the same on every rank of the group.
struct TensorPlan {
    int size = 1;                               // ranks of the group
    std::vector<TensorParameter> parameters;    // all parameters of the model, in its order
    std::vector<TensorCollective> collectives;  // in the order of the forward pass

    // Return the bytes of all collectives of one micro batch.
    [[nodiscard]] Bytes forward_bytes() const;
    [[nodiscard]] Bytes backward_bytes() const;
};

// Returns the layers that stay whole because of an obstacle. Each line is "\n  whole on every rank:
// …"; equal layers share a line. Empty if there is no such layer.
[[nodiscard]] std::string unproven_text(const TensorPlan& plan);

// Returns tables for people: parameters (equal layers in one line), collectives and bytes.
[[nodiscard]] std::string tensor_plan_text(const TensorPlan& plan);

}  // namespace dslaunch::plan
