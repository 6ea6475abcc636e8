// The elements of a tensor in memory order, which is the order of flat buffers and checkpoints.
// Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace dslaunch::graph {

// Returns the elements as [numel]: a view if TENSOR has no gaps, otherwise a row-major copy.
[[nodiscard]] at::Tensor in_memory_order(const at::Tensor& tensor);
// Returns the strides that restore the order of the elements in TENSOR; empty for row-major.
[[nodiscard]] std::vector<int64_t> strides_in_memory(const at::Tensor& tensor);
// Returns a tensor on the meta device, without memory. It has TENSOR's type and sizes, and the
// strides for elements in the order of in_memory_order().
[[nodiscard]] at::Tensor like_in_memory(const at::Tensor& tensor);
// Returns a tensor with LIKE's shape and strides that uses the fp32 elements at DATA. They must be
// in the memory order of LIKE. The caller keeps this memory until LET_GO is called with DATA.
[[nodiscard]] at::Tensor as_in_memory(
    const float* data, const at::Tensor& like,
    const std::function<void(void*)>& let_go = [](void*) {});

}  // namespace dslaunch::graph
