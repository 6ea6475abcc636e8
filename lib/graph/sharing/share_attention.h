// Attention and dropout of a rank's share of a tensor, with what LibTorch would draw for the whole.
// Feeds tensor_operators.cpp. No state; any thread. The whole's noise is drawn on every rank, from
// the thread's generator, and takes the whole's memory meanwhile.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/layout/tensor_shares.h"

namespace dslaunch::graph {

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

// The attention of PART's share of the heads with the keys and values of those heads, or of its
// share of the queries with all keys and values.
[[nodiscard]] at::Tensor attention_of_share(AttentionOperands operands,
                                            const AttentionOptions& options, PartOf part);

// What at::dropout multiplies a tensor of SIZES, laid out as X, by: PART's SHARD of it.
[[nodiscard]] at::Tensor share_of_noise(const at::Tensor& x, const std::vector<int64_t>& sizes,
                                        double dropout, const plan::TensorShard& shard,
                                        PartOf part);

}  // namespace dslaunch::graph
