// A chunk of a rank's states, what may be offloaded of it, and where it is. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/kinds/state_packing.h"
#include "base/range.h"

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

}  // namespace dslaunch::plan
