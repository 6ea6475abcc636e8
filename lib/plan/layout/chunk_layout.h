// The places of a chunk's parts in its buffer and on disk, and the memory for packing them. Data
// path: state chunks, their format -> [here] -> step plan, lib/zero. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/kinds/state_packing.h"
#include "plan/layout/state_chunks.h"

namespace dslaunch::plan {

// The offsets of a chunk's parts in its buffer, in bytes from the start; -1 if the chunk has no
// such part. Each part begins at a page. If nothing is packed, the parts have the same offsets on
// disk.
struct ChunkLayout {
    int64_t parameters = -1;  // [numel] in the dtype that segments read
    int64_t master = -1;      // [numel] fp32; each of the moments has the same form
    std::array<int64_t, kMomentsMax> moments = {-1, -1, -1};
    int64_t bytes = 0;
    // An update writes the whole chunk, but reads only the bytes from this offset on. It does not
    // read 16-bit parameters, since it makes them from the master copies.
    int64_t read_from = 0;
    // The space for the packed chunk on disk, in bytes; it consists of whole pages. Lossless
    // compression may leave some of the space unused.
    int64_t disk_parameters = 0;
    int64_t disk_states = 0;

    // Return the largest numbers of bytes that an update writes to disk and reads from disk.
    [[nodiscard]] int64_t disk_written() const { return disk_parameters + disk_states; }
    [[nodiscard]] int64_t disk_read() const {
        return disk_states + (read_from == 0 ? disk_parameters : 0);
    }
    // The bytes of the chunk's reduced gradients, [numel] fp32. They have a separate extent and
    // buffer, because they are added up while other chunks are updated.
    int64_t sum_bytes = 0;
};

// The parts of every chunk, and their forms in memory and on disk.
struct ChunkFormat {
    int64_t parameter_bytes = 4;  // bytes of an element
    bool master = false;          // true: there are fp32 copies too
    int64_t optimizer_states = 2;
    std::array<StatePacking, kMomentsMax> packings = {};
    bool lossless = false;
    bool sums = false;              // true: reduced gradients are kept where the states are
    bool packed_in_memory = false;  // true: PACKINGS apply to moments in memory too

    // Returns true if some part has different forms on disk and in a buffer.
    [[nodiscard]] bool packs() const {
        return lossless || packings != std::array<StatePacking, kMomentsMax>{};
    }
    // Returns true if moment K is packed in memory, not fp32.
    [[nodiscard]] bool packs_in_memory(size_t k) const {
        return packed_in_memory && packings[k] != StatePacking::kNone;
    }
    // Returns the bytes of the moments of NUMEL elements in memory.
    [[nodiscard]] Bytes moments_in_memory(int64_t numel) const {
        Bytes bytes;
        for (size_t k = 0; k < static_cast<size_t>(optimizer_states); ++k)
            bytes += Bytes{packs_in_memory(k) ? tiled_bytes(packings[k], numel) : numel * 4};
        return bytes;
    }
    // Returns the bytes of the moments of NUMEL elements on disk, without padding.
    [[nodiscard]] Bytes moments_on_disk(int64_t numel) const {
        Bytes bytes;
        for (size_t k = 0; k < static_cast<size_t>(optimizer_states); ++k)
            bytes += Bytes{packed_bytes(packings[k], numel)};
        return bytes;
    }
};
// An image is the packed parts of a chunk, one after the other. Its sections begin at cache lines.
inline constexpr int64_t kImageAlignment = 64;

// Memory for packing and for unpacking chunks. Each of the two needs room for the packed image of a
// chunk and for one section of the image. The members are the sizes for one of the two; they are 0
// if nothing is packed.
struct PackingRoom {
    int64_t image_bytes = 0;
    int64_t section_bytes = 0;

    // Returns the bytes for both directions together.
    [[nodiscard]] int64_t total_bytes() const { return 2 * (image_bytes + section_bytes); }
};
// Returns the room in which any one of CHUNKS can be packed while any other is unpacked.
[[nodiscard]] PackingRoom packing_room(const StateChunks& chunks, const ChunkFormat& format);

// Returns the places of the parts of CHUNK.
[[nodiscard]] ChunkLayout chunk_layout(const StateChunk& chunk, const ChunkFormat& format);

}  // namespace dslaunch::plan
