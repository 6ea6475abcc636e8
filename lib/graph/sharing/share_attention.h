// Attention and dropout for a rank's share of a tensor, with the random numbers that LibTorch would
// draw for the whole tensor; and attention of a rank's queries with the keys of all ranks. Used by
// tensor_operators.cpp. No state; any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/layout/tensor_share.h"

namespace dslaunch::graph {

class TensorGroup;

// The tensors that attention reads.
struct AttentionOperands {
    at::Tensor query, key, value;  // [.., heads, positions, width]
    at::Tensor mask;  // added to the scores, or true for keys that count; may be undefined
};

// The form of attention, and the share of it that a rank computes.
struct AttentionOptions {
    double dropout = 0;
    bool is_causal = false;
    std::optional<double> scale;  // none: 1 / sqrt(width of a head)
    bool repeats_heads = false;   // keys and values have fewer heads
    int64_t dim = 0;              // the split dimension: the heads, or the query's positions
    int64_t extent = 0;           // extent of that dimension over all ranks
};

// A scope in which attention behaves as an operator that autocast casts: the constructor casts
// OPERANDS to autocast's dtype, and autocast is off until the scope ends. Does nothing if autocast
// is off already.
class AttentionInAutocast {
  public:
    explicit AttentionInAutocast(AttentionOperands& operands);
    AttentionInAutocast(const AttentionInAutocast&) = delete;
    AttentionInAutocast& operator=(const AttentionInAutocast&) = delete;
    ~AttentionInAutocast();

  private:
    c10::DeviceType device_;
    bool is_enabled_;
};

// Returns the attention of a rank's share. The share is either PART of the heads, with the keys and
// values of these heads, or PART of the queries, with all keys and values. Every rank draws the
// noise of the whole tensor from the thread's generator, and needs memory for this whole noise
// during the call.
[[nodiscard]] at::Tensor attention_of_share(AttentionOperands operands,
                                            const AttentionOptions& options, PartOf part);

// Returns the factors of dropout for PART's share of a tensor. The whole tensor has the shape SIZES
// and X's layout, and SHARD says how it is split. The factors are equal to the factors that
// at::dropout draws for the whole tensor.
[[nodiscard]] at::Tensor share_of_noise(const at::Tensor& x, const std::vector<int64_t>& sizes,
                                        double dropout, const plan::TensorShard& shard,
                                        PartOf part);

// Returns the attention of the rank's queries [batch, heads, positions of the rank, width], or
// without a batch. Blocks of keys and values move around the ranks (Ring Attention,
// arXiv:2310.01889), and each block's part of the softmax is combined with the earlier parts
// (arXiv:1805.02867). A rank never has more than two blocks in memory, and saves only its own block
// for the backward. OPERANDS.key and .value are the rank's block. A mask has either the rank's rows
// or a single row, and either a column for each key of all ranks or a single column. The result is
// differentiable with respect to query, key and value; the backward uses GROUP, which must outlive
// it. Throws what GROUP throws at SITE. REQUIRES: OPTIONS.dropout is 0; the blocks of all ranks
// have the same shape; the mask needs no gradient.
[[nodiscard]] at::Tensor ring_attention(AttentionOperands operands, const AttentionOptions& options,
                                        TensorGroup& group, int64_t site);

}  // namespace dslaunch::graph
