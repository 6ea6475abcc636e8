// The elements of a tensor in memory order, which is the order of flat buffers and checkpoints.
// Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::graph {

// Returns the elements as [numel]: a view if TENSOR has no gaps, otherwise a row-major copy.
[[nodiscard]] at::Tensor in_memory_order(const at::Tensor& tensor);
// Returns the strides that restore the order of the elements in TENSOR; empty for row-major.
[[nodiscard]] std::vector<int64_t> strides_in_memory(const at::Tensor& tensor);
// Returns a tensor like TENSOR without memory (on the meta device), for elements in the order of
// in_memory_order().
[[nodiscard]] at::Tensor like_in_memory(const at::Tensor& tensor);

}  // namespace dslaunch::graph
