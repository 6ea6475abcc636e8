// The elements of a tensor in the order in which they lie in memory: the order of flat buffers and
// of checkpoints. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::graph {

// [numel], a view where TENSOR is without gaps, else its rows as a copy.
[[nodiscard]] at::Tensor in_memory_order(const at::Tensor& tensor);
// Strides that give the elements back their places; empty: row-major.
[[nodiscard]] std::vector<int64_t> strides_in_memory(const at::Tensor& tensor);

}  // namespace dslaunch::graph
