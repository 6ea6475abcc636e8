#include "kernels/packed_update.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/packing.h"

namespace dslaunch::kernels {

namespace {

// Returns the number of elements in tile TILE of an array of NUMEL elements.
int64_t tile_numel(int64_t tile, int64_t numel) {
    return std::min(kPackedTileNumel, numel - tile * kPackedTileNumel);
}

template <typename Byte>
std::span<Byte> image_of(StatePacking packing, Byte* tiles, int64_t tile, int64_t numel) {
    return {tiles + tile * packed_bytes(packing, kPackedTileNumel),
            static_cast<size_t>(packed_bytes(packing, tile_numel(tile, numel)))};
}

// The place of the parameters among the states, for seed_of().
constexpr size_t kParametersPlace = 2;

// Returns a different seed for each state and tile.
uint32_t seed_of(uint32_t seed, size_t state, int64_t tile) {
    return seed * 2 + static_cast<uint32_t>(state) * 0x85EBCA6BU +
           static_cast<uint32_t>(tile * kPackedTileNumel);
}

template <typename T>
std::span<T> part_of(std::span<T> values, int64_t begin, int64_t numel) {
    if (values.empty()) return values;
    return values.subspan(static_cast<size_t>(begin), static_cast<size_t>(numel));
}

}  // namespace

TileRange tiles_of(const FlatRange& range) {
    const int64_t begin = range.packed.begin;
    return {begin / kPackedTileNumel,
            (begin + range.numel + kPackedTileNumel - 1) / kPackedTileNumel};
}

void update_tile(const FlatRange& range, int64_t tile,
                 const std::function<void(const FlatRange& part)>& update) {
    const PackedStates& packed = range.packed;
    const int64_t tile_begin = tile * kPackedTileNumel;
    const int64_t numel = tile_numel(tile, packed.numel);
    const int64_t begin = std::max(packed.begin, tile_begin);
    const int64_t end = std::min(packed.begin + range.numel, tile_begin + numel);
    const int64_t in_range = begin - packed.begin, taken = end - begin;
    thread_local std::array<std::vector<float>, kMomentsMax> unpacked;
    thread_local std::vector<float> widened;
    thread_local std::vector<const float*> gradients;
    gradients.assign(range.gradients.begin(), range.gradients.end());
    for (const float*& source : gradients) source += in_range;
    FlatRange part = range;
    part.packed = {};
    part.numel = taken;
    part.gradients = gradients;
    part.parameters = part_of(range.parameters, in_range, taken);
    part.decay_parameters = part_of(range.decay_parameters, in_range, taken);
    part.half_parameters = part_of(range.half_parameters, in_range, taken);
    const std::array<std::span<float>*, kMomentsMax> states{&part.first, &part.second, &part.third};
    for (size_t k = 0; k < states.size(); ++k) {
        if (packed.states[k] == nullptr) {
            *states[k] = part_of(*states[k], in_range, taken);
            continue;
        }
        unpacked[k].resize(static_cast<size_t>(numel));
        unpack_state(packed.packings[k],
                     image_of(packed.packings[k], packed.states[k], tile, packed.numel),
                     unpacked[k]);
        *states[k] = part_of(std::span(unpacked[k]), begin - tile_begin, taken);
    }
    std::span<std::byte> halves;
    if (packed.parameters != nullptr) {
        widened.resize(static_cast<size_t>(taken));
        halves = {reinterpret_cast<std::byte*>(packed.parameters + in_range),
                  static_cast<size_t>(packed_bytes(StatePacking::kBf16, taken))};
        unpack_state(StatePacking::kBf16, halves, widened);
        part.parameters = widened;
    }
    update(part);
    if (packed.parameters != nullptr)
        pack_state(StatePacking::kBf16, widened, halves,
                   seed_of(packed.seed, kParametersPlace, tile));
    for (size_t k = 0; k < states.size(); ++k)
        if (packed.states[k] != nullptr)
            pack_state(packed.packings[k], unpacked[k],
                       image_of(packed.packings[k], packed.states[k], tile, packed.numel),
                       seed_of(packed.seed, k < kParametersPlace ? k : k + 1, tile));
}

void pack_tiles(StatePacking packing, std::span<const float> values, int64_t begin, int64_t numel,
                std::byte* tiles, uint32_t seed) {
    DSL_CHECK(begin % kPackedTileNumel == 0, "tiles cannot begin at element {}", begin);
    for (int64_t done = 0; done < std::ssize(values); done += kPackedTileNumel) {
        const int64_t tile = (begin + done) / kPackedTileNumel;
        pack_state(packing, part_of(values, done, tile_numel(tile, numel)),
                   image_of(packing, tiles, tile, numel), seed_of(seed, 0, tile));
    }
}

void unpack_tiles(StatePacking packing, const std::byte* tiles, int64_t begin, int64_t numel,
                  std::span<float> out) {
    DSL_CHECK(begin % kPackedTileNumel == 0, "tiles cannot begin at element {}", begin);
    for (int64_t done = 0; done < std::ssize(out); done += kPackedTileNumel) {
        const int64_t tile = (begin + done) / kPackedTileNumel;
        unpack_state(packing, image_of(packing, tiles, tile, numel),
                     part_of(out, done, tile_numel(tile, numel)));
    }
}

}  // namespace dslaunch::kernels
