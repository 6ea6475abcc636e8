// Cuts the states of a rank into chunks. A chunk is updated as a unit and, if it is offloaded, read
// and written as a unit. Data path: flat layout, partition -> state chunks -> step plan, lib/zero.
// Pure. Source of the idea: sub-groups of Rajbhandari et al. 2021 (ZeRO-Infinity), section 6.
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

// The states that are offloaded, and the rules for their chunks.
struct OffloadPlan {
    bool states = false;       // true: moments and master copies are on disk
    bool parameters = false;   // true: parameters that are not persistent are on disk too (stage 3)
    int64_t chunk_numel = 0;   // elements of the largest chunk; 0: chosen from the ranks' shares
    int64_t swap_buffers = 4;  // number of buffers for chunks that pass through memory
    double ratio = 1.0;        // fraction of the chunks whose states are on disk, not in memory
    std::array<StatePacking, kMomentsMax> packings = {};  // packings of the moments on disk
    bool packed_in_memory = false;                        // true: moments in memory are packed too
    bool lossless = false;                    // true: other parts are compressed on disk
    int64_t parameter_numel_in_memory = 0;    // elements of parameters that a rank may keep in
                                              // memory although parameters are offloaded
    int64_t chunk_numel_max = 1'000'000'000;  // limit of an automatically chosen size
    // True if whole chunks may move between memory and disk from one step to the next. The first
    // kept_chunks chunks of StateChunks::keep_order are kept in memory. If kept_chunks is -1, the
    // number follows from `ratio`.
    bool adaptive = false;
    int64_t kept_chunks = -1;
    EvictionRule eviction = EvictionRule::kFifo;  // for chunks that pass through memory

    // Returns true if anything is offloaded.
    [[nodiscard]] bool any() const { return states || parameters; }
};

// The largest number of chunks of a rank. Each chunk has extents, checksums and instructions in
// every step; a plan with about ten thousand chunks is made and checked within a second or two.
inline constexpr int64_t kChunksMax = int64_t{16} * 1024;

// The place of a chunk's states, or of its parameters, on a rank.
enum class ChunkHome {
    kNone,    // not kept per rank: states of frozen parameters, parameters in the arena
    kMemory,  // in memory under every plan
    kKept,    // in memory because this plan keeps the chunk; on disk under another plan
    kDisk,
};

// A chunk of one rank.
struct StateChunk {
    int bucket = 0;
    // The chunk's range within this rank's states of the bucket. The states consist of the rank's
    // pieces in order, each padded to kSliceAlignmentNumel. The range is empty if other ranks have
    // more elements and this rank has none left for the chunk.
    Range range;
    ChunkHome states = ChunkHome::kNone;
    ChunkHome parameters = ChunkHome::kNone;
    bool last = false;      // true: the last chunk of its bucket
    int64_t numel_max = 0;  // elements on the rank that has the most
    // The chunk's index among the chunks that pass through memory in each step, in the order of
    // their updates; -1 if its update reads and writes nothing on disk.
    int turn = -1;

    // Returns true if the chunk has optimizer states, so that it is updated.
    [[nodiscard]] bool trained() const { return states != ChunkHome::kNone; }
    // Return true if the chunk has states on disk (states_on_disk), parameters on disk
    // (parameters_on_disk), or any of the two on disk (on_disk).
    [[nodiscard]] bool states_on_disk() const { return states == ChunkHome::kDisk; }
    [[nodiscard]] bool parameters_on_disk() const { return parameters == ChunkHome::kDisk; }
    [[nodiscard]] bool on_disk() const { return states_on_disk() || parameters_on_disk(); }
    // Returns true if this rank has the parameters in memory (kMemory or kKept).
    [[nodiscard]] bool parameters_in_memory() const {
        return parameters == ChunkHome::kMemory || kept_parameters();
    }
    // Return true if this plan keeps the chunk's states (kept_states), its parameters
    // (kept_parameters), or any of the two (kept) in memory. Their place is then ChunkHome::kKept.
    [[nodiscard]] bool kept_states() const { return states == ChunkHome::kKept; }
    [[nodiscard]] bool kept_parameters() const { return parameters == ChunkHome::kKept; }
    [[nodiscard]] bool kept() const { return kept_states() || kept_parameters(); }
    // Returns true if an update reads and writes a part of the chunk on disk. A chunk that this
    // plan keeps in memory counts as if it were on disk.
    [[nodiscard]] bool passes() const { return trained() && (on_disk() || kept()); }
    // Returns the chunk as it would be in a plan that does not keep it in memory.
    [[nodiscard]] StateChunk given_back() const;
};

// All chunks of one rank.
struct StateChunks {
    std::vector<StateChunk> all;       // by bucket, then by range
    std::vector<int> first_of_bucket;  // [buckets + 1]
    std::vector<int> turns;            // chunks that pass through memory, in update order
    // All chunks that may move between memory and disk, in the order in which they are kept. Any
    // prefix of this order is spread evenly over the step; frozen chunks come last.
    std::vector<int> keep_order;

    // Returns how many elements of a bucket are in chunks for which HOLDS returns true, padding
    // included.
    [[nodiscard]] int64_t numel_where(bool (StateChunk::*holds)() const, int bucket) const;
};

// The rank for which chunks are made, and the rules for them.
struct StateChunkOptions {
    int rank = 0;
    int stage = 0;  // ZeRO stage
    OffloadPlan offload = {};
    std::vector<int> update_order = {};  // trained buckets in the order of their updates
};

// Returns the chunks. Every rank has the same number of chunks for a bucket. Without offloading and
// without packing in memory, each trained bucket is one chunk. PARTITION is needed from stage 1 on.
// REQUIRES: offload.parameters only at stage 3, offload.states only from stage 1 on.
[[nodiscard]] StateChunks make_state_chunks(const FlatLayout& layout, const Partition* partition,
                                            const StateChunkOptions& options);

// Returns an error message if OFFLOAD cuts a rank's states into more than kChunksMax chunks; the
// message names the smallest chunk size that is possible. Returns "" otherwise. PARTITION is needed
// if anything is offloaded.
[[nodiscard]] std::string too_many_chunks(const FlatLayout& layout, const Partition* partition,
                                          const OffloadPlan& offload);

}  // namespace dslaunch::plan
