// Attention of a rank's queries with the keys of all ranks, of which it holds its own block: blocks
// of keys and values go round the ranks (Ring Attention, arXiv:2310.01889), and each one's part of
// the softmax is joined to what came before it (arXiv:1805.02867). A rank never holds more than two
// blocks, and keeps its own alone for the backward. Feeds tensor_operators.cpp. No state; any
// thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "graph/sharing/share_attention.h"
#include "graph/sharing/tensor_group.h"

namespace dslaunch::graph {

// The attention of the rank's queries [batch, heads, positions of the rank, width], or without a
// batch. OPERANDS.key and .value are the rank's block; a mask has the rank's rows, or one for all,
// and a column for each key of all ranks, or one. Differentiable with respect to query, key and
// value, by GROUP, which must outlive the backward. Throws what GROUP does at SITE. REQUIRES:
// OPTIONS.dropout is 0; all ranks have blocks of one shape; the mask takes no gradient.
[[nodiscard]] at::Tensor ring_attention(AttentionOperands operands, const AttentionOptions& options,
                                        TensorGroup& group, int64_t site);

}  // namespace dslaunch::graph
