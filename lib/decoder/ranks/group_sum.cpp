#include "decoder/ranks/group_sum.h"

#include <fmt/core.h>

#include <algorithm>

namespace dslaunch::decoder {

GroupSum::Slices GroupSum::add_slices(runtime::ArenaLayout& arena, int64_t numel) {
    constexpr int64_t kPieceNumel = int64_t{1} << 18;
    Slices slices;
    slices.numel = std::min(numel, kPieceNumel);
    for (int i = 0; i < kBuckets; ++i)
        slices.buckets[i] = arena.add_bucket(fmt::format("sums of rows {}", i), slices.numel);
    return slices;
}

void GroupSum::sum(std::span<float> values) {
    if (size() == 1) return;
    const auto piece = static_cast<size_t>(slices_.numel);
    for (size_t begin = 0; begin < values.size(); begin += piece)
        sum_piece(values.subspan(begin, std::min(piece, values.size() - begin)));
}

void GroupSum::sum_piece(std::span<float> values) {
    const runtime::BucketId bucket = slices_.buckets[turn_];
    const runtime::Generation generation = ++generations_[turn_];
    turn_ = (turn_ + 1) % kBuckets;
    collectives_.await_free(bucket, generation);
    const std::span<float> mine = collectives_.bucket(bucket);
    std::ranges::copy(values, mine.begin());
    collectives_.post(bucket, generation);
    if (collectives_.topology().node_count() == 1) {
        const std::vector<const float*> sources = collectives_.await_sources(bucket, generation);
        std::copy_n(sources.front(), values.size(), values.begin());
        for (size_t rank = 1; rank < sources.size(); ++rank)
            for (size_t i = 0; i < values.size(); ++i) values[i] += sources[rank][i];
    } else {
        // The whole bucket is summed, so the rest of the bucket must contain numbers too.
        std::fill(mine.begin() + std::ssize(values), mine.end(), 0.0F);
        collectives_.reduce(bucket, generation, 1.0F);
        const runtime::ReducedParts sums = collectives_.await_reduced(bucket, generation);
        sums.for_each_in({0, std::ssize(values)},
                         [&](const Range& range, std::span<const float> part) {
                             std::ranges::copy(part, values.begin() + range.begin);
                         });
    }
    collectives_.release(bucket, generation);
}

}  // namespace dslaunch::decoder
