// An update of states that are kept in fewer bits: tile by tile they are unpacked into the cache,
// updated in fp32 there and packed again. Data path: HostQueue -> [here] -> flat kernels. Threads:
// one tile each.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/flat_range.h"

namespace dslaunch::kernels {

// The tiles that RANGE has a part of: [first, end).
struct TileRange {
    int64_t first = 0;
    int64_t end = 0;
};
[[nodiscard]] TileRange tiles_of(const FlatRange& range);

// Calls UPDATE with the part of RANGE that lies in TILE; its states are fp32 arrays meanwhile.
// Other elements of the tile are packed again as they were, up to rounding. Several threads may
// update tiles at once. REQUIRES: range.begin is 0; a tile of tiles_of(range).
void update_tile(const FlatRange& range, int64_t tile,
                 const std::function<void(const FlatRange& part)>& update);

// Packs VALUES, elements [BEGIN, BEGIN + n) of a state of NUMEL elements in tiles, to TILES. BEGIN
// begins a tile, and VALUES end at a tile's end. And back.
void pack_tiles(StatePacking packing, std::span<const float> values, int64_t begin, int64_t numel,
                std::byte* tiles, uint32_t seed);
void unpack_tiles(StatePacking packing, const std::byte* tiles, int64_t begin, int64_t numel,
                  std::span<float> out);

}  // namespace dslaunch::kernels
