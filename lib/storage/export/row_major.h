// The elements of a tensor have places in its memory, which are reckoned here. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {

// True when the elements lie row by row in memory.
[[nodiscard]] bool is_row_major(const CheckpointTensor& tensor);

// The index of the element that stands at PLACE in the order of memory.
[[nodiscard]] std::vector<int64_t> index_of(const CheckpointTensor& tensor, int64_t place);

// MEMORY: all elements of TENSOR in the order of its memory, ELEMENT_BYTES each. USE gets them in
// the order of rows, in parts of at most a MiB. REQUIRES: strides as many as dimensions; no two
// elements share a place.
void for_each_row_major(const CheckpointTensor& tensor, std::span<const std::byte> memory,
                        int64_t element_bytes,
                        const std::function<void(std::span<const std::byte> part)>& use);

// The same of VIEW's elements, which are some of MEMORY's.
void for_each_row_major(const CheckpointView& view, std::span<const std::byte> memory,
                        int64_t element_bytes,
                        const std::function<void(std::span<const std::byte> part)>& use);

}  // namespace dslaunch::storage
