// A rank's states cut into chunks: a chunk is updated as one, and if it is offloaded, read and
// written as one. Data path: flat layout, partition -> state chunks -> step plan, lib/zero. Pure.
// Source of the idea: sub-groups of Rajbhandari et al. 2021 (ZeRO-Infinity), section 6.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/eviction_rule.h"
#include "base/kinds/state_packing.h"
#include "base/range.h"
#include "plan/layout/flat_layout.h"
#include "plan/layout/partition.h"

namespace dslaunch::plan {

struct OffloadPlan {
    bool states = false;       // true: moments and master copies are on disk
    bool parameters = false;   // true: parameters that are not persistent are on disk too (stage 3)
    int64_t chunk_numel = 0;   // elements of the largest chunk; 0: chosen by the ranks' shares
    int64_t swap_buffers = 4;  // buffers in memory for chunks that pass
    double ratio = 1.0;        // share of the chunks whose states are on disk; the others stay in
                               // memory
    std::array<StatePacking, 2> packings = {};  // packings of the moments on disk
    bool packed_in_memory = false;              // true: and of those in memory
    bool lossless = false;                      // true: parts that are not packed are compressed on
                                                // their way
    int64_t parameter_numel_in_memory = 0;      // largest number of a rank's parameter elements
                                                // kept in memory though parameters are on disk
    int64_t chunk_numel_max = 1'000'000'000;    // limit of a chosen size
    // True if whole chunks may move between memory and disk from step to step. The first
    // kept_chunks of StateChunks::keep_order are in memory; -1: as many as `ratio` leaves.
    bool adaptive = false;
    int64_t kept_chunks = -1;
    EvictionRule eviction = EvictionRule::kFifo;  // of chunks that pass

    [[nodiscard]] bool any() const { return states || parameters; }
};

// The largest number of chunks of a rank: each chunk has extents, checksums and instructions in
// every step, and a plan of some ten thousand is made and checked within a second or two.
inline constexpr int64_t kChunksMax = int64_t{16} * 1024;

// The place of a chunk's states, or of its parameters, on a rank.
enum class ChunkHome {
    kNone,    // nowhere: states of frozen parameters, parameters that the host's ranks share
    kMemory,  // in memory under every plan
    kKept,    // in memory because this plan keeps the chunk; on disk under another plan
    kDisk,
};

struct StateChunk {
    int bucket = 0;
    // A range of this rank's states of the bucket: its pieces one after the other, each padded to
    // kSliceAlignmentNumel. Empty if the rank has less than others.
    Range range;
    ChunkHome states = ChunkHome::kNone;
    ChunkHome parameters = ChunkHome::kNone;
    bool last = false;      // true: the last chunk of its bucket
    int64_t numel_max = 0;  // elements on the rank that has most of the chunk
    // Index among the chunks that pass through memory in each step, in the order of their updates;
    // -1: its update reads and writes nothing on disk.
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
    // Returns true if an update reads and writes some of it under a plan that does not keep it.
    [[nodiscard]] bool passes() const { return trained() && (on_disk() || kept()); }
    // Returns the chunk as it is under a plan that does not keep it.
    [[nodiscard]] StateChunk given_back() const;
};

struct StateChunks {
    std::vector<StateChunk> all;       // by bucket, then by range
    std::vector<int> first_of_bucket;  // [buckets + 1]
    std::vector<int> turns;            // chunks that pass, in the order of their updates
    // All chunks that may move between memory and disk, in the order in which they are kept. Any
    // number of first chunks is spread over the step; frozen ones come last.
    std::vector<int> keep_order;

    // Returns the elements of a bucket in chunks for which HOLDS is true, padding included.
    [[nodiscard]] int64_t numel_where(bool (StateChunk::*holds)() const, int bucket) const;
};

struct StateChunkOptions {
    int rank = 0;
    int stage = 0;  // ZeRO stage
    OffloadPlan offload = {};
    std::vector<int> update_order = {};  // trained buckets in the order of their updates
};

// Returns the chunks. Every rank has equally many chunks of a bucket. Without offload each trained
// bucket is one chunk. PARTITION is given from stage 1 on. REQUIRES: offload.parameters only at
// stage 3, offload.states from stage 1 on.
[[nodiscard]] StateChunks make_state_chunks(const FlatLayout& layout, const Partition* partition,
                                            const StateChunkOptions& options);

// Returns an error's message if OFFLOAD cuts a rank's states into more than kChunksMax chunks, with
// the smallest size that does not; else "". PARTITION is given if anything is offloaded.
[[nodiscard]] std::string too_many_chunks(const FlatLayout& layout, const Partition* partition,
                                          const OffloadPlan& offload);

// The places of a chunk's parts in its buffer and, if nothing is packed, also on disk: bytes from
// the start, each part at a page; -1: no such part.
struct ChunkLayout {
    int64_t parameters = -1;  // [numel] in the dtype that segments read
    int64_t master = -1;      // [numel] fp32, as moments
    std::array<int64_t, 2> moments = {-1, -1};
    int64_t bytes = 0;
    // An update writes the whole chunk and reads the bytes from here on: it makes 16-bit parameters
    // from their master copies.
    int64_t read_from = 0;
    // Room on disk in bytes, whole pages, for the buffer packed by the format. Lossless compression
    // may use less of it.
    int64_t disk_parameters = 0;
    int64_t disk_states = 0;

    // Returns the largest number of bytes that an update writes, and reads.
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
    bool packed_in_memory = false;  // true: PACKINGS hold for moments in memory too

    // Returns true if anything on disk differs from its form in a buffer.
    [[nodiscard]] bool packs() const {
        return lossless || packings[0] != StatePacking::kNone || packings[1] != StatePacking::kNone;
    }
    // Returns true if moment K in memory is not fp32.
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

// Returns the buffer of each of TURNS, from 0 to the smaller of TURNS and BUFFERS. A buffer holds
// its turns' chunks one after the other, and the last one's until the next step: a chunk that has a
// buffer of its own never moves. Under kFifo and kLru the turns go round all buffers, under kLfu
// round kLfuPassingBuffers of them, and chunks that stay are spread over the step. REQUIRES:
// BUFFERS > 0 if there are turns.
[[nodiscard]] std::vector<int> deal_buffers(int64_t turns, int64_t buffers, EvictionRule rule);

// Returns the number of turns whose chunks move in every step.
[[nodiscard]] int64_t passing_turns(int64_t turns, int64_t buffers, EvictionRule rule);

}  // namespace dslaunch::plan
