// Packings of optimizer states into fewer bytes than fp32; the kernels are in
// lib/kernels/packing.h. The plan uses this header to count bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace dslaunch {

// The most values that an optimizer keeps for each element: Adam with amsgrad keeps three.
inline constexpr size_t kMomentsMax = 3;

// The formats in which one optimizer state can be stored. The errors below arise each time a number
// is stored.
enum class StatePacking : uint8_t {
    kNone,      // fp32, unpacked
    kBf16,      // error less than 2^-7 of the number
    kInt8,      // error less than 1/127 of the block's largest number
    kUint8Root  // the square root in 8 bits, for numbers >= 0. The error is at most 511/255^2 of
                // the block's largest number. A number other than 0 never becomes 0: it becomes at
                // least 1/255^2 of the largest number.
};

// The number of elements that share a scale in the 8-bit packings.
inline constexpr int64_t kPackedBlockNumel = 256;

// Returns the bytes that the scales of NUMEL elements take: one fp32 for each block. The scales are
// stored before the one-byte codes.
[[nodiscard]] constexpr int64_t packed_scale_bytes(int64_t numel) {
    return round_up(numel, kPackedBlockNumel) / kPackedBlockNumel * 4;
}

// Returns the size of NUMEL packed elements.
[[nodiscard]] constexpr int64_t packed_bytes(StatePacking packing, int64_t numel) {
    if (packing == StatePacking::kNone) return 4 * numel;
    if (packing == StatePacking::kBf16) return 2 * numel;
    return packed_scale_bytes(numel) + numel;
}

// The number of elements in a tile. Packed states in memory are a sequence of tiles, each packed
// separately, so that a thread can unpack, update and pack one tile at a time.
inline constexpr int64_t kPackedTileNumel = int64_t{16} * 1024;

// Returns the size of NUMEL elements in tiles. Each tile begins at a cache line.
[[nodiscard]] constexpr int64_t tiled_bytes(StatePacking packing, int64_t numel) {
    const int64_t whole = numel / kPackedTileNumel;
    return whole * packed_bytes(packing, kPackedTileNumel) +
           round_up(packed_bytes(packing, numel - whole * kPackedTileNumel), 64);
}

}  // namespace dslaunch
