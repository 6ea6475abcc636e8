// How what a rank keeps is cut into chunks: a chunk is updated as one, and where it is offloaded,
// read and written as one. Where it stands: flat layout, partition -> state chunks -> step plan,
// lib/zero. Pure. Source of the idea: sub-groups of Rajbhandari et al. 2021 (ZeRO-Infinity),
// section 6.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/range.h"
#include "plan/flat_layout.h"
#include "plan/partition.h"

namespace dslaunch {

struct OffloadPlan {
    bool states = false;      // moments and master copies are on disk
    bool parameters = false;  // stage 3: so are parameters that are not persistent
    int64_t chunk_numel = 0;  // of the largest chunk, 0: chosen from what the ranks own
    int64_t slots = 4;        // chunks that memory holds while they pass
    double ratio = 1.0;       // of the chunks, whose states are on disk; the rest stays in memory
    int64_t chunk_numel_max = 1'000'000'000;  // of what is chosen

    [[nodiscard]] bool any() const { return states || parameters; }
};

struct StateChunk {
    int bucket = 0;
    // Of this rank's states of the bucket: its pieces one after the other, each padded to
    // kSliceAlignmentNumel. Empty where the rank has less than others.
    Range range;
    bool states_on_disk = false;
    bool parameters_on_disk = false;
    bool last = false;  // of its bucket
    // Place among the chunks that pass through memory in each step, in the order of their updates;
    // -1: nothing of it is read or written when it is updated.
    int turn = -1;
};

struct StateChunks {
    std::vector<StateChunk> all;       // by bucket, then by range
    std::vector<int> first_of_bucket;  // [buckets + 1]
    std::vector<int> turns;            // chunks that pass, in the order of their updates
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

// Where the parts of a chunk lie on disk and, equally, in its slot: bytes from its start, each part
// at a page; -1: not there.
struct ChunkLayout {
    int64_t parameters = -1;  // [numel] of the dtype that segments read
    int64_t master = -1;      // [numel] fp32, as the next
    std::array<int64_t, 2> moments = {-1, -1};
    int64_t bytes = 0;
    // An update writes all of it and reads what comes from here on: 16-bit parameters are made anew
    // from their master copies.
    int64_t read_from = 0;
    // Of its reduced gradients, [numel] fp32, which have an extent and a slot of their own: they
    // are added up while other chunks are updated.
    int64_t sum_bytes = 0;
};

struct ChunkFormat {
    int64_t parameter_bytes = 4;  // of an element
    bool master = false;          // there are fp32 copies besides
    int64_t optimizer_states = 2;
    bool sums = false;  // reduced gradients are kept: they are where the states are
};
[[nodiscard]] ChunkLayout chunk_layout(const StateChunk& chunk, const ChunkFormat& format);

}  // namespace dslaunch
