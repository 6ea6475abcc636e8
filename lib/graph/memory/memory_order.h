// The elements of a tensor in the order in which they lie in memory: the order of flat buffers and
// of checkpoints. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::graph {

// Returns [numel], a view if TENSOR has no gaps, else a copy of its rows.
[[nodiscard]] at::Tensor in_memory_order(const at::Tensor& tensor);
// Returns the strides that put the elements back in their places; empty: row-major.
[[nodiscard]] std::vector<int64_t> strides_in_memory(const at::Tensor& tensor);
// Returns a tensor without memory (on the meta device) with elements as in in_memory_order().
[[nodiscard]] at::Tensor like_in_memory(const at::Tensor& tensor);

}  // namespace dslaunch::graph
