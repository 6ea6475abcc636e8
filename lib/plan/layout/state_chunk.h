// A chunk of a rank's states, what may be offloaded of it, and where it is. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/kinds/eviction_rule.h"
#include "base/kinds/state_packing.h"
#include "base/range.h"

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
    // True if an update reads and writes some of the chunk under a plan that does not keep it.
    [[nodiscard]] bool passes() const { return trained() && (on_disk() || kept()); }
    // The chunk as it is under a plan that does not keep it.
    [[nodiscard]] StateChunk given_back() const;
};

struct StateChunks {
    std::vector<StateChunk> all;       // by bucket, then by range
    std::vector<int> first_of_bucket;  // [buckets + 1]
    std::vector<int> turns;            // chunks that pass, in the order of their updates
    // All chunks that may move between memory and disk, in the order in which they are kept. The
    // first ones, however many, are spread over the step; frozen ones come last.
    std::vector<int> keep_order;

    // Elements of a bucket in the chunks of which HOLDS is true, padding included.
    [[nodiscard]] int64_t numel_where(bool (StateChunk::*holds)() const, int bucket) const;
};

struct StateChunkOptions {
    int rank = 0;
    int stage = 0;  // ZeRO stage
    OffloadPlan offload = {};
    std::vector<int> update_order = {};  // trained buckets in the order of their updates
};

}  // namespace dslaunch::plan
