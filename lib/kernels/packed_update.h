// The update of states that are kept in fewer bits than fp32. Each tile is unpacked into the cache,
// updated there in fp32, and packed again. Data path: HostQueue -> [here] -> flat kernels. Threads:
// each updates one tile at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/flat_range.h"

namespace dslaunch::kernels {

// The tiles [first, end) that contain elements of RANGE.
struct TileRange {
    int64_t first = 0;
    int64_t end = 0;
};
// Returns the tiles that an update of RANGE must unpack.
[[nodiscard]] TileRange tiles_of(const FlatRange& range);

// Unpacks the states of tile TILE to fp32 arrays, calls UPDATE with the part of RANGE in this tile,
// and packs the states again. The tile's elements outside of RANGE change only by rounding. Several
// threads may update different tiles at once. REQUIRES: range.begin is 0; TILE is in
// tiles_of(range).
void update_tile(const FlatRange& range, int64_t tile,
                 const std::function<void(const FlatRange& part)>& update);

// Packs VALUES, which are elements [BEGIN, BEGIN + n) of a state of NUMEL elements, into TILES, the
// tiles of the whole state. BEGIN is the first element of a tile, and VALUES end at the end of a
// tile. unpack_tiles does the reverse.
void pack_tiles(StatePacking packing, std::span<const float> values, int64_t begin, int64_t numel,
                std::byte* tiles, uint32_t seed);
void unpack_tiles(StatePacking packing, const std::byte* tiles, int64_t begin, int64_t numel,
                  std::span<float> out);

}  // namespace dslaunch::kernels
