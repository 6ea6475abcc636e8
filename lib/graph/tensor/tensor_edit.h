// The changes that make a node of a lowered graph compute on a rank's shares. The flow of
// placements (placement_flow.h) collects them; tensor_rewrite.cpp carries them out. No state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "graph/nodes/names.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::graph {

// A change to a node of the graph. Edits are in the order of the nodes.
struct TensorEdit {
    // Each kind says whether it changes an input or the output of the node.
    enum class Kind {
        kCopy,          // input: goes through tensor_copy
        kSummand,       // input: a parameter whose gradient here is a summand
        kShare,         // input: replaced by the rank's share of it
        kRepeat,        // input: each slice repeated `count` times along the dimension
        kRepeatShare,   // input: repeated, then replaced by the rank's share of it
        kGather,        // input: gathered to the whole tensor
        kGatherSum,     // input: gathered to the whole tensor; its gradient is a summand
        kScatter,       // input: replaced by the rank's share; its gradient is gathered
        kExchange,      // input: split in dimension `count` instead of the shard's
        kExchangeBack,  // output: split in the shard's dimension instead of `count`
        kRowLoss,       // tensor_row_loss and tensor_reduce
        kSum,           // output: summed by tensor_reduce, then a bias is added; divided
                        // by `count` if that is not 0
        kEmbedding,     // tensor_embedding and tensor_reduce
        kCrossEntropy,  // tensor_cross_entropy
        kDropout,       // tensor_dropout
        kAttention,     // tensor_attention
        kRing,          // tensor_ring_attention
        kExtent,        // output: a rank's extent is made whole (in a list: entry `count`)
        kShape,         // input: a list of extents; entry `count` becomes the rank's
        kDivide,        // input: an integer, replaced by `count`, or a list, divided by ranks
    };
    Kind kind = Kind::kCopy;
    Node* node = nullptr;
    size_t input = 0;
    plan::TensorShard shard;
    int64_t count = 0;
    std::optional<plan::TensorShard> keep = std::nullopt;  // for a sum: the share that is kept
};

}  // namespace dslaunch::graph
