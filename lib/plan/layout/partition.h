// Ownership at ZeRO stages 1 to 3: every bucket of the flat buffers cut into pieces, each with the
// rank that keeps its optimizer states (stage 1), reduced gradients (2) and parameters (3). Data
// path: flat layout -> partition -> step plan, lib/zero. Pure; every rank computes the same. Source
// of the stages: Rajbhandari et al. 2019 (ZeRO), sections 5 and 7.
#pragma once

#include <cstdint>
#include <vector>

#include "base/kinds/shard_kind.h"
#include "base/range.h"
#include "plan/layout/flat_layout.h"
#include "plan/model/model_info.h"

namespace dslaunch::plan {

struct ShardPiece {
    Range range;    // elements of the bucket, never empty
    int owner = 0;  // rank
};

struct Partition {
    int world_size = 1;
    std::vector<std::vector<ShardPiece>> buckets;  // by bucket; pieces tile the bucket, in order

    // Returns the elements that RANK owns of one bucket, or of the buckets below END_BUCKET.
    [[nodiscard]] int64_t owned_numel(int rank, int bucket) const;
    [[nodiscard]] int64_t owned_numel_below(int rank, int end_bucket) const;
};

// Returns the partition. Pieces begin and end at the layout's blocks (by row: at rows), padding
// goes with the piece before it. By kFlat every rank gets 1 / WORLD_SIZE of each bucket, within a
// block; by kLayer, kGroup and kParameter whole layers, modules or parameters go to the rank with
// least elements, largest first; by kRow rows are shared out evenly in order, and parameters with
// fewer rows than ranks leave some ranks without. REQUIRES: world_size >= 1.
[[nodiscard]] Partition make_partition(const FlatLayout& layout, const ModelInfo& model, ShardBy by,
                                       int world_size);

// The evenness of a partition over the elements of all buckets.
struct PartitionBalance {
    int64_t numel_min = 0;  // elements of the rank that owns least
    int64_t numel_max = 0;
    int64_t pieces = 0;
    double imbalance = 1;  // the largest share over the mean
};
[[nodiscard]] PartitionBalance balance_of(const Partition& partition);

}  // namespace dslaunch::plan
