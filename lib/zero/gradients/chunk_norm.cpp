#include "zero/gradients/chunk_norm.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::zero {

ChunkNorm::ChunkNorm(std::span<const NormBlock> blocks, const StateStore& states,
                     const plan::FlatLayout& layout, device::Queue& queue)
    : blocks_(blocks),
      queue_(queue),
      squares_(blocks.size()),
      done_(blocks.size(), 0),
      broken_(static_cast<size_t>(layout.block_numel)) {
    struct Place {
        int chunk;
        ChunkPart part;
    };
    // The chunk parts of each bucket, by their position in the bucket.
    std::vector<std::vector<Place>> places(static_cast<size_t>(layout.trained_buckets));
    std::vector<std::vector<int>> blocks_of(places.size());
    for (size_t i = 0; i < blocks.size(); ++i)
        blocks_of[blocks[i].bucket].push_back(static_cast<int>(i));
    for (int b = 0; b < layout.trained_buckets; ++b) {
        const auto bucket = static_cast<size_t>(b);
        for (const int c : states.chunks_of(b)) {
            shares_.resize(std::max(shares_.size(), static_cast<size_t>(c) + 1));
            for (const ChunkPart& part : states.parts(c)) places[bucket].push_back({c, part});
        }
        std::ranges::sort(places[bucket], {}, [](const Place& p) { return p.part.range.begin; });
        std::ranges::sort(blocks_of[bucket], {}, [&](int i) { return blocks[i].range.begin; });
        size_t first = 0;
        for (const int i : blocks_of[bucket]) {
            const Range& range = blocks[i].range;
            while (first < places[bucket].size() &&
                   places[bucket][first].part.range.end() <= range.begin)
                ++first;
            for (size_t p = first; p < places[bucket].size(); ++p) {
                const auto& [chunk, part] = places[bucket][p];
                const Range both = intersect(part.range, range);
                if (both.numel == 0) break;
                shares_[chunk].push_back(
                    {i, both, part.offset_numel + both.begin - part.range.begin});
            }
        }
    }
}

// Notes the blocks of chunk C. Later the stream sums the squares of all noted blocks at once, so
// that the host waits only once for the stream.
void ChunkNorm::sum_later(int c, const float* sums) {
    later_.resize(blocks_.size());
    for (const Share& share : shares_[c]) {
        const auto i = static_cast<size_t>(share.block);
        DSL_CHECK(share.range == blocks_[i].range, "norm block {} is split between two chunks", i);
        later_[i] = {sums + share.offset_numel, share.range.numel};
        done_[i] = 1;
    }
}

void ChunkNorm::add(int c, const float* sums) {
    if (queue_.stream() != nullptr) return sum_later(c, sums);
    for (const Share& share : shares_[c]) {
        const auto i = static_cast<size_t>(share.block);
        const Range& whole = blocks_[i].range;
        const float* values = sums + share.offset_numel;
        if (share.range.numel < whole.numel) {
            DSL_CHECK(share.range.begin == whole.begin + broken_numel_,
                      "norm block {} came out of order", i);
            std::copy_n(values, share.range.numel, broken_.begin() + broken_numel_);
            broken_numel_ += share.range.numel;
            if (broken_numel_ < whole.numel) continue;
            values = broken_.data();
            broken_numel_ = 0;
        }
        squares_[i] = kernels::sum_of_squares(values, whole.numel);
        done_[i] = 1;
    }
}

std::vector<double> ChunkNorm::take() {
    DSL_CHECK(std::ranges::count(done_, 0) == 0, "{} norm blocks were not added",
              std::ranges::count(done_, 0));
    std::ranges::fill(done_, 0);
    return later_.empty() ? squares_ : queue_.sums_of_squares(later_);
}

}  // namespace dslaunch::zero
