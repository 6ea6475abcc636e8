// A packing of optimizer states in fewer bytes than fp32; the kernels are in lib/kernels/packing.h.
// The plan knows it to count the bytes.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace dslaunch {

enum class StatePacking : uint8_t {
    kNone,      // fp32 as it is
    kBf16,      // off by less than 2^-7 of the number
    kInt8,      // off by less than 1/127 of the largest of its block
    kUint8Root  // the root in 8 bits, of numbers >= 0. It is off by at most 511/255^2 of its
                // block's largest; what is not 0 stays so, at least 1/255^2 of the largest
};

// Elements that share a scale in the 8-bit packings.
inline constexpr int64_t kPackedBlockNumel = 256;

// Returns the bytes of the scales of NUMEL elements, one fp32 a block, before their one-byte codes.
[[nodiscard]] constexpr int64_t packed_scale_bytes(int64_t numel) {
    return round_up(numel, kPackedBlockNumel) / kPackedBlockNumel * 4;
}

// Returns the bytes that NUMEL elements take.
[[nodiscard]] constexpr int64_t packed_bytes(StatePacking packing, int64_t numel) {
    if (packing == StatePacking::kNone) return 4 * numel;
    if (packing == StatePacking::kBf16) return 2 * numel;
    return packed_scale_bytes(numel) + numel;
}

// Elements of a tile. Packed states in memory are images of so many elements each, one after the
// other, so that a thread unpacks, updates and packs one at a time.
inline constexpr int64_t kPackedTileNumel = int64_t{16} * 1024;

// Returns the bytes of NUMEL elements in tiles. A tile begins at a line of the cache.
[[nodiscard]] constexpr int64_t tiled_bytes(StatePacking packing, int64_t numel) {
    const int64_t whole = numel / kPackedTileNumel;
    return whole * packed_bytes(packing, kPackedTileNumel) +
           round_up(packed_bytes(packing, numel - whole * kPackedTileNumel), 64);
}

}  // namespace dslaunch
