// A rank's share of a tensor, and the tensor of all ranks' shares. No state; any thread. Throws
// Error{kInput} where a batch does not fit the shares of the first one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "plan/layout/tensor_shares.h"

namespace dslaunch::graph {

// Return a rank's share of WHOLE, and the whole from all ranks' shares in order. Both are copies.
// If SHARD has a single block, it is the whole dimension, whatever its extent; several equal blocks
// are as many as fit in the dimension.
[[nodiscard]] at::Tensor share_of(const at::Tensor& whole, const plan::TensorShard& shard,
                                  PartOf part);
[[nodiscard]] at::Tensor whole_of(const std::vector<at::Tensor>& shares,
                                  const plan::TensorShard& shard);

// Returns SHARD fitted to a dimension of EXTENT: the last batch may have fewer rows than the first,
// and each row is a block of positions.
[[nodiscard]] plan::TensorShard fitted(const plan::TensorShard& shard, int64_t extent);

// Returns the whole extent of a dimension. A rank has LOCAL elements of it, in BLOCKS.
[[nodiscard]] int64_t whole_extent(const std::vector<int64_t>& blocks, int64_t local, PartOf part);

}  // namespace dslaunch::graph
