// Computes where a tensor's elements are in its memory. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// Returns true if the elements are in row-major order in memory.
[[nodiscard]] bool is_row_major(const CheckpointTensor& tensor);

// Returns the index, in each dimension, of the element at PLACE in the order of memory.
[[nodiscard]] std::vector<int64_t> index_of(const CheckpointTensor& tensor, int64_t place);

// Calls USE with all elements in row-major order, in parts of at most 1 MiB. MEMORY contains the
// elements in the order of TENSOR's memory, with ELEMENT_BYTES bytes each. If this is already the
// row-major order, calls USE once with all of MEMORY. REQUIRES: there are as many strides as
// dimensions; no two elements share a place.
void for_each_row_major(const CheckpointTensor& tensor, std::span<const std::byte> memory,
                        int64_t element_bytes,
                        const std::function<void(std::span<const std::byte> part)>& use);

// Calls USE with the elements of VIEW in row-major order, in parts of at most 1 MiB. MEMORY
// contains all elements of the viewed tensor.
void for_each_row_major(const CheckpointView& view, std::span<const std::byte> memory,
                        int64_t element_bytes,
                        const std::function<void(std::span<const std::byte> part)>& use);

}  // namespace dslaunch::storage
