// Computes the places of a tensor's elements in its memory. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// True if the elements lie row by row in memory.
[[nodiscard]] bool is_row_major(const CheckpointTensor& tensor);

// Returns the index of the element at PLACE in the order of memory.
[[nodiscard]] std::vector<int64_t> index_of(const CheckpointTensor& tensor, int64_t place);

// Gives USE all elements in the order of rows, in parts of at most a MiB. MEMORY has them in the
// order of TENSOR's memory, ELEMENT_BYTES each. REQUIRES: as many strides as dimensions; no two
// elements share a place.
void for_each_row_major(const CheckpointTensor& tensor, std::span<const std::byte> memory,
                        int64_t element_bytes,
                        const std::function<void(std::span<const std::byte> part)>& use);

// Does the same for VIEW's elements, which are some of MEMORY's.
void for_each_row_major(const CheckpointView& view, std::span<const std::byte> memory,
                        int64_t element_bytes,
                        const std::function<void(std::span<const std::byte> part)>& use);

}  // namespace dslaunch::storage
