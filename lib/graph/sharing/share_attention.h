// Attention and dropout of a rank's share of a tensor, with what LibTorch would draw for the whole,
// and attention of a rank's queries with the keys of all ranks. Feeds tensor_operators.cpp. No
// state; any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/layout/tensor_shares.h"

namespace dslaunch::graph {

class TensorGroup;

struct AttentionOperands {
    at::Tensor query, key, value;  // [.., heads, positions, width]
    at::Tensor mask;  // added to the scores, or true where a key counts; undefined: none
};

struct AttentionOptions {
    double dropout = 0;
    bool causal = false;
    std::optional<double> scale;  // none: 1 / sqrt(width of a head)
    bool repeats_heads = false;   // fewer heads of keys and values
    int64_t dim = 0;     // the one that is split: of the heads, or of the query's positions
    int64_t extent = 0;  // of that dimension, all ranks together
};

// A scope of attention's inside: OPERANDS get autocast's dtype, and nothing in the scope does.
class AttentionInAutocast {
  public:
    explicit AttentionInAutocast(AttentionOperands& operands);
    AttentionInAutocast(const AttentionInAutocast&) = delete;
    AttentionInAutocast& operator=(const AttentionInAutocast&) = delete;
    ~AttentionInAutocast();

  private:
    c10::DeviceType device_;
    bool enabled_;
};

// Returns the attention of PART's share of the heads with the keys and values of those heads, or of
// its share of the queries with all keys and values. Every rank draws the whole's noise from the
// thread's generator, and needs the memory for it meanwhile.
[[nodiscard]] at::Tensor attention_of_share(AttentionOperands operands,
                                            const AttentionOptions& options, PartOf part);

// Returns PART's SHARD of the factors that at::dropout draws for a tensor of SIZES laid out as X.
[[nodiscard]] at::Tensor share_of_noise(const at::Tensor& x, const std::vector<int64_t>& sizes,
                                        double dropout, const plan::TensorShard& shard,
                                        PartOf part);

// Returns the attention of the rank's queries [batch, heads, positions of the rank, width], or
// without a batch. Blocks of keys and values go round the ranks (Ring Attention, arXiv:2310.01889),
// and each block's part of the softmax is joined to the parts before it (arXiv:1805.02867). A rank
// never holds more than two blocks, and keeps only its own for the backward. OPERANDS.key and
// .value are the rank's block; a mask has the rank's rows, or one for all, and a column for each
// key of all ranks, or one. Differentiable with respect to query, key and value, by GROUP, which
// must outlive the backward. Throws what GROUP does at SITE. REQUIRES: OPTIONS.dropout is 0; all
// ranks have blocks of one shape; the mask takes no gradient.
[[nodiscard]] at::Tensor ring_attention(AttentionOperands operands, const AttentionOptions& options,
                                        TensorGroup& group, int64_t site);

}  // namespace dslaunch::graph
