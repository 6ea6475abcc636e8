#include "graph/sharing/share_of.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace dslaunch::graph {

namespace {

bool are_alike(const std::vector<int64_t>& blocks) {
    return std::ranges::all_of(blocks,
                               [&](int64_t block) { return block > 0 && block == blocks.front(); });
}

}  // namespace

plan::TensorShard fitted(const plan::TensorShard& shard, int64_t extent) {
    const std::vector<int64_t>& blocks = shard.blocks;
    if (blocks.size() == 1) return {shard.dim, {extent}};
    if (are_alike(blocks) && extent % blocks.front() == 0)
        return {shard.dim,
                std::vector<int64_t>(static_cast<size_t>(extent / blocks.front()), blocks.front())};
    const int64_t sum = std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
    if (extent != sum)
        fail(ExitCode::kInput,
             "dimension {} of a split value has {} elements in this batch, but had {} in the first "
             "batch, divided into {} unequal blocks; all batches must have the same shape",
             shard.dim, extent, sum, blocks.size());
    return shard;
}

int64_t whole_extent(const std::vector<int64_t>& blocks, int64_t local, PartOf part) {
    if (blocks.size() > 1 && are_alike(blocks)) {
        const int64_t own = plan::shard_ranges({0, {blocks.front()}}, part).front().numel;
        if (own > 0 && local % own == 0) return local / own * blocks.front();
    }
    return std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
}

at::Tensor share_of(const at::Tensor& whole, const plan::TensorShard& shard, PartOf part) {
    const int64_t dim = shard.dim;
    std::vector<at::Tensor> pieces;
    for (const Range& range : plan::shard_ranges(fitted(shard, whole.size(dim)), part))
        pieces.push_back(whole.narrow(dim, range.begin, range.numel));
    return pieces.size() == 1 ? pieces[0].clone(at::MemoryFormat::Contiguous)
                              : at::cat(pieces, dim);
}

at::Tensor whole_of(const std::vector<at::Tensor>& shares, const plan::TensorShard& shard) {
    if (shard.blocks.size() == 1) return at::cat(shares, shard.dim);
    int64_t extent = 0;
    for (const at::Tensor& share : shares) extent += share.size(shard.dim);
    std::vector<at::Tensor> pieces;
    std::vector<int64_t> offsets(shares.size(), 0);
    for (const int64_t block : fitted(shard, extent).blocks) {
        for (size_t rank = 0; rank < shares.size(); ++rank) {
            const PartOf part{static_cast<int>(rank), static_cast<int>(shares.size())};
            const int64_t numel = plan::shard_ranges({shard.dim, {block}}, part).front().numel;
            pieces.push_back(shares[rank].narrow(shard.dim, offsets[rank], numel));
            offsets[rank] += numel;
        }
    }
    return at::cat(pieces, shard.dim);
}

}  // namespace dslaunch::graph
