// Sums and rows of the tensor ranks of a decoder, in memory that they share, or between hosts. Data
// path: decoder -> [here] -> collectives. One thread.
#pragma once

#include <cstdint>
#include <span>

#include "decoder/decode/decoder.h"
#include "runtime/comm/collectives.h"

namespace dslaunch::decoder {

class GroupSum final : public RankSum {
  public:
    static constexpr int kBuckets = 2;  // one is read while the next is written
    struct Slices {
        runtime::BucketId buckets[kBuckets];
        int64_t numel = 0;  // of a bucket
    };
    // Adds the slices of a group to its arena, the same on every rank of it. NUMEL: the most floats
    // that one sum has; longer ones go in pieces.
    [[nodiscard]] static Slices add_slices(runtime::ArenaLayout& arena, int64_t numel);

    // COLLECTIVES: of the tensor ranks; must outlive this.
    GroupSum(runtime::Collectives& collectives, const Slices& slices)
        : collectives_(collectives), slices_(slices) {}

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
