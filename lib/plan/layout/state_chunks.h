// A rank's states cut into chunks: a chunk is updated as one, and if it is offloaded, read and
// written as one. Data path: flat layout, partition -> state chunks -> step plan, lib/zero. Pure.
// Source of the idea: sub-groups of Rajbhandari et al. 2021 (ZeRO-Infinity), section 6.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/state_packing.h"
#include "plan/layout/flat_layout.h"
#include "plan/layout/partition.h"
#include "plan/layout/state_chunk.h"

namespace dslaunch::plan {

// Every rank has equally many chunks of a bucket. Without offload each trained bucket is one chunk.
// PARTITION is given from stage 1 on. REQUIRES: offload.parameters only at stage 3, offload.states
// from stage 1 on.
[[nodiscard]] StateChunks make_state_chunks(const FlatLayout& layout, const Partition* partition,
                                            const StateChunkOptions& options);

// An error's message if OFFLOAD cuts a rank's states into more than kChunksMax chunks, with the
// smallest size that does not; else empty. PARTITION is given if anything is offloaded.
[[nodiscard]] std::string too_many_chunks(const FlatLayout& layout, const Partition* partition,
                                          const OffloadPlan& offload);

// The places of a chunk's parts in its buffer and, if nothing is packed, also on disk: bytes from
// the start, each part at a page; -1: no such part.
struct ChunkLayout {
    int64_t parameters = -1;  // [numel] in the dtype that segments read
    int64_t master = -1;      // [numel] fp32, as moments
    std::array<int64_t, 2> moments = {-1, -1};
    int64_t bytes = 0;
    // An update writes the whole chunk and reads the bytes from here on: 16-bit parameters are made
    // anew from their master copies.
    int64_t read_from = 0;
    // Room on disk in bytes, whole pages, for the buffer packed by the format. Lossless compression
    // may use less of it.
    int64_t disk_parameters = 0;
    int64_t disk_states = 0;

    // The largest number of bytes that an update writes, and reads.
    [[nodiscard]] int64_t disk_written() const { return disk_parameters + disk_states; }
    [[nodiscard]] int64_t disk_read() const {
        return disk_states + (read_from == 0 ? disk_parameters : 0);
    }
    // Bytes of the chunk's reduced gradients, [numel] fp32, which have an extent and a buffer of
    // their own: they are added up while other chunks are updated.
    int64_t sum_bytes = 0;
};

struct ChunkFormat {
    int64_t parameter_bytes = 4;  // bytes of an element
    bool master = false;          // true: there are fp32 copies too
    int64_t optimizer_states = 2;
    std::array<StatePacking, 2> packings = {};
    bool lossless = false;
    bool sums = false;              // true: reduced gradients are kept, in the place of the states
    bool packed_in_memory = false;  // true: PACKINGS are those of moments in memory too

    // True if anything on disk differs from its form in a buffer.
    [[nodiscard]] bool packs() const {
        return lossless || packings[0] != StatePacking::kNone || packings[1] != StatePacking::kNone;
    }
    // True if moment K in memory is not fp32.
    [[nodiscard]] bool packs_in_memory(size_t k) const {
        return packed_in_memory && packings[k] != StatePacking::kNone;
    }
    // Bytes of the moments of NUMEL elements in memory.
    [[nodiscard]] Bytes moments_in_memory(int64_t numel) const {
        Bytes bytes;
        for (size_t k = 0; k < static_cast<size_t>(optimizer_states); ++k)
            bytes += Bytes{packs_in_memory(k) ? tiled_bytes(packings[k], numel) : numel * 4};
        return bytes;
    }
    // Bytes of the moments of NUMEL elements on disk, without padding.
    [[nodiscard]] Bytes moments_on_disk(int64_t numel) const {
        Bytes bytes;
        for (size_t k = 0; k < static_cast<size_t>(optimizer_states); ++k)
            bytes += Bytes{packed_bytes(packings[k], numel)};
        return bytes;
    }
};
// Sections of an image, packed parts of a chunk one after the other, begin at lines of the cache.
inline constexpr int64_t kImageAlignment = 64;

// Memory in which chunks are packed and unpacked on their way, for each of the two directions: the
// image on disk, and a section of it. 0 if nothing is packed.
struct PackingRoom {
    int64_t image_bytes = 0;
    int64_t section_bytes = 0;

    [[nodiscard]] int64_t total_bytes() const { return 2 * (image_bytes + section_bytes); }
};
[[nodiscard]] PackingRoom packing_room(const StateChunks& chunks, const ChunkFormat& format);

[[nodiscard]] ChunkLayout chunk_layout(const StateChunk& chunk, const ChunkFormat& format);

}  // namespace dslaunch::plan
