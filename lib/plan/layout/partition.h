// Ownership at ZeRO stages 1 to 3: every bucket of the flat buffers is cut into pieces, and each
// piece has an owner, the rank that keeps its optimizer states (stage 1), its reduced gradients
// (stage 2) and its parameters (stage 3). Data path: flat layout -> partition -> step plan,
// lib/zero. Pure; every rank computes the same. Source of the stages: Rajbhandari et al. 2019
// (ZeRO), sections 5 and 7.
#pragma once

#include <cstdint>
#include <vector>

#include "base/kinds/shard_kind.h"
#include "base/range.h"
#include "plan/layout/flat_layout.h"
#include "plan/model/model_info.h"

namespace dslaunch::plan {

// A range of a bucket with one owner.
struct ShardPiece {
    Range range;    // elements of the bucket, never empty
    int owner = 0;  // rank
};

// The owners of all elements of the flat buffers.
struct Partition {
    int world_size = 1;
    std::vector<std::vector<ShardPiece>> buckets;  // by bucket; pieces tile the bucket, in order

    // Returns the number of elements that RANK owns in a bucket.
    [[nodiscard]] int64_t owned_numel(int rank, int bucket) const;
};

// Returns the partition. Pieces begin and end at block borders of the layout or, with kRow, at
// rows; padding belongs to the piece before it. With kFlat, every rank gets 1 / WORLD_SIZE of each
// bucket, to the nearest block. With kLayer, kGroup and kParameter, whole layers, modules or
// parameters are assigned, largest first, each to the rank with the fewest elements so far. With
// kRow, the rows of each parameter are divided evenly among the ranks in order; a parameter with
// fewer rows than ranks gives some ranks nothing. REQUIRES: world_size >= 1.
[[nodiscard]] Partition make_partition(const FlatLayout& layout, const ModelInfo& model, ShardBy by,
                                       int world_size);

// The evenness with which a partition divides the elements of all buckets among the ranks.
struct PartitionBalance {
    int64_t numel_min = 0;  // elements of the rank that owns least
    int64_t numel_max = 0;
    int64_t pieces = 0;
    double imbalance = 1;  // the largest share, divided by the mean share
};
// Returns the balance over all buckets.
[[nodiscard]] PartitionBalance balance_of(const Partition& partition);

}  // namespace dslaunch::plan
