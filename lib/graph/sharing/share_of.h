// Computes a rank's share of a tensor, and the whole tensor from all ranks' shares. No state; any
// thread. Throws Error{kInput} if a batch does not fit the shares of the first batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "plan/layout/tensor_share.h"

namespace dslaunch::graph {

// Return a rank's share of WHOLE, and the whole tensor from all ranks' shares in rank order. Both
// are copies. If SHARD has a single block, the block is the whole dimension, whatever its extent.
// If SHARD has several equal blocks, the dimension has as many blocks as fit in it.
[[nodiscard]] at::Tensor share_of(const at::Tensor& whole, const plan::TensorShard& shard,
                                  PartOf part);
[[nodiscard]] at::Tensor whole_of(const std::vector<at::Tensor>& shares,
                                  const plan::TensorShard& shard);

// Returns SHARD adapted to a dimension of EXTENT. This is needed because the last batch may have
// fewer rows than the first, and each row is a block of positions.
[[nodiscard]] plan::TensorShard fitted(const plan::TensorShard& shard, int64_t extent);

// Returns the extent of a whole dimension that is divided into BLOCKS. LOCAL: the elements in this
// rank's share.
[[nodiscard]] int64_t whole_extent(const std::vector<int64_t>& blocks, int64_t local, PartOf part);

}  // namespace dslaunch::graph
