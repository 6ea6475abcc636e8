// Sums over the tensor ranks of a decoder, in memory that they share, or between hosts. Data path:
// decoder -> [here] -> collectives. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "decoder/decode/rank_sum.h"
#include "runtime/comm/collectives.h"

namespace dslaunch::decoder {

// A RankSum for the tensor ranks of a job. It alternates between two shared buffers ("buckets"), so
// that ranks can still read one buffer while others write to the other one.
class GroupSum final : public RankSum {
  public:
    static constexpr int kBuckets = 2;
    // The place of the buckets in the group's arena.
    struct Slices {
        runtime::BucketId buckets[kBuckets];
        int64_t numel = 0;  // size of a bucket
    };
    // Adds the slices that a group needs to its arena; every rank of the group must do the same.
    // NUMEL: the largest number of floats in a sum; larger sums are computed in pieces.
    [[nodiscard]] static Slices add_slices(runtime::ArenaLayout& arena, int64_t numel);

    // COLLECTIVES: the collectives of the tensor ranks; they must outlive this object.
    GroupSum(runtime::Collectives& collectives, const Slices& slices)
        : collectives_(collectives), slices_(slices) {}

    // Return this rank's index among the tensor ranks, and how many tensor ranks there are.
    [[nodiscard]] int rank() const { return collectives_.topology().rank(); }
    [[nodiscard]] int size() const { return collectives_.topology().world_size(); }
    void sum(std::span<float> values) override;

  private:
    void sum_piece(std::span<float> values);

    runtime::Collectives& collectives_;
    Slices slices_;
    int turn_ = 0;
    runtime::Generation generations_[kBuckets] = {};
};

}  // namespace dslaunch::decoder
