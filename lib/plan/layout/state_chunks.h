// A rank's states cut into chunks: a chunk is updated as one, and where it is offloaded, read and
// written as one. Data path: flat layout, partition -> state chunks -> step plan, lib/zero.
// Pure. Source of the idea: sub-groups of Rajbhandari et al. 2021 (ZeRO-Infinity), section 6.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/state_packing.h"
#include "base/range.h"
#include "plan/layout/flat_layout.h"
#include "plan/layout/partition.h"

namespace dslaunch::plan {

struct OffloadPlan {
    bool states = false;       // moments and master copies are on disk
    bool parameters = false;   // stage 3: so are parameters that are not persistent
    int64_t chunk_numel = 0;   // of the largest chunk, 0: chosen from what the ranks own
    int64_t swap_buffers = 4;  // chunks that memory holds while they pass
    double ratio = 1.0;        // of the chunks, whose states are on disk; the rest stays in memory
    std::array<StatePacking, 2> packings = {};  // of the moments, on disk
    bool lossless = false;                      // what is not packed is compressed on its way
    int64_t parameter_numel_in_memory = 0;      // of a rank's, at most, though parameters are on
                                                // disk
    int64_t chunk_numel_max = 1'000'000'000;    // of what is chosen
    // Chunks may move between memory and disk from step to step, each whole: KEPT_CHUNKS of them
    // are in memory, the first of StateChunks::keep_order; -1: as many as RATIO leaves.
    bool adaptive = false;
    int64_t kept_chunks = -1;

    [[nodiscard]] bool any() const { return states || parameters; }
};

// Chunks of a rank at most: each has extents, checksums and instructions in every step, and a plan
// of some ten thousand is made and checked within a second or two.
inline constexpr int64_t kChunksMax = 16 * 1024;

// Where a rank has a chunk's states, or its parameters.
enum class ChunkHome {
    kNone,    // it has none: states of frozen parameters, parameters that the host's ranks share
    kMemory,  // in memory under every plan
    kKept,    // in memory because this plan keeps the chunk; under another one on disk
    kDisk,
};

struct StateChunk {
    int bucket = 0;
    // A range of this rank's states of the bucket: its pieces one after the other, each padded to
    // kSliceAlignmentNumel. It is empty where the rank has less than others.
    Range range;
    ChunkHome states = ChunkHome::kNone;
    ChunkHome parameters = ChunkHome::kNone;
    bool last = false;      // of its bucket
    int64_t numel_max = 0;  // of the rank that has most of it
    // Place among the chunks that pass through memory in each step, in the order of their updates;
    // -1: nothing of it is read or written when it is updated.
    int turn = -1;

    [[nodiscard]] bool trained() const { return states != ChunkHome::kNone; }
    [[nodiscard]] bool states_on_disk() const { return states == ChunkHome::kDisk; }
    [[nodiscard]] bool parameters_on_disk() const { return parameters == ChunkHome::kDisk; }
    [[nodiscard]] bool on_disk() const { return states_on_disk() || parameters_on_disk(); }
    [[nodiscard]] bool parameters_in_memory() const {
        return parameters == ChunkHome::kMemory || kept_parameters();
    }
    [[nodiscard]] bool kept_states() const { return states == ChunkHome::kKept; }
    [[nodiscard]] bool kept_parameters() const { return parameters == ChunkHome::kKept; }
    [[nodiscard]] bool kept() const { return kept_states() || kept_parameters(); }
    // Whether an update reads and writes some of it under a plan that does not keep it.
    [[nodiscard]] bool passes() const { return trained() && (on_disk() || kept()); }
    // The same chunk where the plan does not keep it.
    [[nodiscard]] StateChunk given_back() const;
};

struct StateChunks {
    std::vector<StateChunk> all;       // by bucket, then by range
    std::vector<int> first_of_bucket;  // [buckets + 1]
    std::vector<int> turns;            // chunks that pass, in the order of their updates
    // All chunks that may move between memory and disk, in the order in which they are kept. Any
    // first part of those that are updated is spread over the step; frozen ones come last.
    std::vector<int> keep_order;

    // Elements of a bucket in the chunks of which HOLDS is true, padding included.
    [[nodiscard]] int64_t numel_where(bool (StateChunk::*holds)() const, int bucket) const;
};

struct StateChunkOptions {
    int rank = 0;
    int stage = 0;  // of ZeRO
    OffloadPlan offload = {};
    std::vector<int> update_order = {};  // trained buckets, as the step updates them
};

// Every rank has equally many chunks of a bucket. Without offload each trained bucket is one.
// PARTITION: from stage 1 on. REQUIRES: offload.parameters only at stage 3, offload.states from
// stage 1 on.
[[nodiscard]] StateChunks make_state_chunks(const FlatLayout& layout, const Partition* partition,
                                            const StateChunkOptions& options);

// Why OFFLOAD cuts what a rank keeps into more than kChunksMax chunks, and the smallest size that
// does not, as an error's message; empty: it does not. PARTITION: where anything is offloaded.
[[nodiscard]] std::string too_many_chunks(const FlatLayout& layout, const Partition* partition,
                                          const OffloadPlan& offload);

// Where the parts of a chunk lie in its buffer and, where nothing is packed, equally on disk: bytes
// from its start, each part at a page; -1: not there.
struct ChunkLayout {
    int64_t parameters = -1;  // [numel] of the dtype that segments read
    int64_t master = -1;      // [numel] fp32, as the next
    std::array<int64_t, 2> moments = {-1, -1};
    int64_t bytes = 0;
    // An update writes all of it and reads what comes from here on: 16-bit parameters are made anew
    // from their master copies.
    int64_t read_from = 0;
    // Room on disk, in bytes, pages: what lies in the buffer, packed as the format says. Compressed
    // without loss it may take less of it.
    int64_t disk_parameters = 0;
    int64_t disk_states = 0;

    // What an update writes and reads, at most.
    [[nodiscard]] int64_t disk_written() const { return disk_parameters + disk_states; }
    [[nodiscard]] int64_t disk_read() const {
        return disk_states + (read_from == 0 ? disk_parameters : 0);
    }
    // Of its reduced gradients, [numel] fp32, which have an extent and a buffer of their own: they
    // are added up while other chunks are updated.
    int64_t sum_bytes = 0;
};

struct ChunkFormat {
    int64_t parameter_bytes = 4;  // of an element
    bool master = false;          // there are fp32 copies besides
    int64_t optimizer_states = 2;
    std::array<StatePacking, 2> packings = {};
    bool lossless = false;
    bool sums = false;  // reduced gradients are kept: they are where the states are

    // Whether anything on disk is not as it lies in a buffer.
    [[nodiscard]] bool packs() const {
        return lossless || packings[0] != StatePacking::kNone || packings[1] != StatePacking::kNone;
    }
    // Of NUMEL elements, padding left out.
    [[nodiscard]] Bytes moments_on_disk(int64_t numel) const {
        Bytes bytes;
        for (size_t k = 0; k < static_cast<size_t>(optimizer_states); ++k)
            bytes += Bytes{packed_bytes(packings[k], numel)};
        return bytes;
    }
};
// Sections of an image, packed parts of a chunk one after the other, begin at lines of the cache.
inline constexpr int64_t kImageAlignment = 64;

// Memory in which chunks are packed and unpacked on their way, for each of the two directions: an
// image as it is on disk, and a section of it. 0 where nothing is packed.
struct PackingRoom {
    int64_t image_bytes = 0;
    int64_t section_bytes = 0;

    [[nodiscard]] int64_t total_bytes() const { return 2 * (image_bytes + section_bytes); }
};
[[nodiscard]] PackingRoom packing_room(const StateChunks& chunks, const ChunkFormat& format);

[[nodiscard]] ChunkLayout chunk_layout(const StateChunk& chunk, const ChunkFormat& format);

}  // namespace dslaunch::plan
