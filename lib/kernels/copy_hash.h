// A hash of a tensor's bits, for comparing copies of the tensor. The hashes of a tensor's parts add
// up to the hash of the whole, however it is divided. Not for texts that an attacker may choose.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dslaunch::kernels {

// Returns the hash of VALUES. Element FIRST of the tensor is the first element of VALUES. Each
// element's bits are multiplied by a factor that depends on its position; the hash is the sum of
// these products modulo 2^64. If exactly one element differs, the hash always differs.
// ELEMENT_BYTES is 2 or 4; VALUES are a whole number of elements.
[[nodiscard]] uint64_t copy_hash(std::span<const std::byte> values, int64_t element_bytes,
                                 int64_t first);

}  // namespace dslaunch::kernels
