#include "zero/gradients/gradient_norm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text/message.h"
#include "graph/tensor/tensor_rank.h"

namespace dslaunch::zero {

NormSlices GradientNorm::add_slices(const plan::FlatLayout& layout, const ShardMap& map,
                                    runtime::ArenaLayout& arena) {
    int64_t blocks = 0;
    for (int b = 0; b < layout.trained_buckets; ++b) {
        blocks += std::ssize(plan::blocks_of(layout, b));
        // A shard that ends within a block cuts the block in two.
        if (map.stage() > 0) blocks += std::ssize(map.node_ranges(b));
    }
    // With sharding by rows, the border of a rank's share may cut a slice, and each cut adds a
    // block.
    blocks += static_cast<int64_t>(layout.trained_slices) * map.topology().world_size();
    return {arena.add_per_rank("norm partials", Bytes{std::max<int64_t>(blocks, 1) * 8}),
            arena.add_signal("norm partials")};
}

GradientNorm::GradientNorm(const ShardMap& map, const plan::Partition* partition,
                           const NormSlices& slices, const runtime::Arena& arena,
                           runtime::HostGroup& group, runtime::Collectives& collectives)
    : map_(map), slices_(slices), arena_(arena), group_(group), collectives_(collectives) {
    const plan::FlatLayout& layout = map.layout();
    struct Block {
        Order order;
        int bucket;
        Range range;
    };
    std::vector<Block> blocks;
    for (int b = 0; b < layout.trained_buckets; ++b) {
        for (const plan::LayoutBlock& block : plan::blocks_of(layout, b)) {
            const plan::ParameterSlice& slice = layout.slices[block.slice];
            const auto add = [&](const Range& range, int owner) {
                if (range.numel > 0)
                    blocks.push_back(
                        {{slice.parameter, range.begin, block.slice, owner}, b, range});
            };
            const Range range{block.begin, block.numel};
            if (map.stage() == 0) {
                add(range, -1);
                continue;
            }
            for (const plan::ShardPiece& piece : partition->buckets[b])
                add(intersect(piece.range, range), piece.owner);
        }
    }
    std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
        return std::tuple(a.order.parameter, a.order.begin) <
               std::tuple(b.order.parameter, b.order.begin);
    });
    const bool replicated = map.stage() == 0;
    me_ = replicated ? group.local_rank() : map.owners().rank();
    owners_ = replicated ? group.local_world_size() : map.owners().world_size();
    for (size_t i = 0; i < blocks.size(); ++i) {
        // At stage 0 the local ranks of every host divide the blocks evenly.
        if (replicated)
            blocks[i].order.owner =
                static_cast<int>(static_cast<int64_t>(i) * owners_ / std::ssize(blocks));
        order_.push_back(blocks[i].order);
        if (blocks[i].order.owner != me_) continue;
        mine_.push_back({blocks[i].order.slice, blocks[i].bucket, blocks[i].range});
    }
}

std::vector<double> GradientNorm::exchange(int64_t step, std::span<const double> mine) {
    if (owners_ == 1) return {mine.begin(), mine.end()};
    const bool on_host = map_.copies_on_hosts();
    const auto as_doubles = [](const auto& bytes) {
        return std::span(reinterpret_cast<const double*>(bytes.data()),
                         bytes.size() / sizeof(double));
    };
    std::vector<std::string> all;
    if (on_host) {
        const std::span<std::byte> own = arena_.of_rank(slices_.partials, group_.local_rank());
        DSL_CHECK(mine.size_bytes() <= own.size(),
                  "{} partial norms do not fit in the shared memory", mine.size());
        std::memcpy(own.data(), mine.data(), mine.size_bytes());
        group_.post(slices_.done, static_cast<uint32_t>(step));
        group_.await_all(slices_.done, static_cast<uint32_t>(step));
    } else {
        all = collectives_.all_gather(
            {reinterpret_cast<const char*>(mine.data()), mine.size_bytes()});
    }
    std::vector<std::span<const double>> by_owner;
    for (int owner = 0; owner < owners_; ++owner)
        by_owner.push_back(on_host
                               ? as_doubles(arena_.of_rank(slices_.partials, owner))
                               : as_doubles(all[static_cast<size_t>(map_.first_owner() + owner)]));
    std::vector<double> partials;
    std::vector<size_t> next(static_cast<size_t>(owners_), 0);
    for (const Order& block : order_) {
        const auto owner = static_cast<size_t>(block.owner);
        const size_t index = next[owner]++;
        DSL_CHECK(index < by_owner[owner].size(), "rank {} sent only {} partial norms", owner,
                  by_owner[owner].size());
        partials.push_back(by_owner[owner][index]);
    }
    return partials;
}

// Replaces the partial sums of squares by their means over the hosts. All ranks add the hosts' sums
// in the same order.
void GradientNorm::average_over_hosts(std::vector<double>& partials) {
    const runtime::Topology& topology = collectives_.topology();
    const std::string_view mine(reinterpret_cast<const char*>(partials.data()),
                                partials.size() * sizeof(double));
    const std::vector<std::string> all =
        collectives_.all_gather(topology.local_rank == 0 ? mine : std::string_view());
    std::vector<double> sums(partials.size(), 0);
    for (int node = 0; node < topology.node_count(); ++node) {
        const std::string& theirs = all[topology.first_rank(node)];
        DSL_CHECK(theirs.size() == mine.size(),
                  "a node sent {} bytes of partial norms, a wrong length", theirs.size());
        for (size_t i = 0; i < sums.size(); ++i) {
            double partial = 0;
            std::memcpy(&partial, theirs.data() + i * sizeof partial, sizeof partial);
            sums[i] += partial;
        }
    }
    for (size_t i = 0; i < sums.size(); ++i) partials[i] = sums[i] / topology.node_count();
}

namespace {

// The sum of squares of one block. `parameter` and `begin` are the block's place in the model.
struct Term {
    int parameter = 0;
    int64_t begin = 0;
    double squares = 0;
};

struct StageTerms {
    static constexpr const char* kWhat = "norm partials of a stage";
    std::vector<Term> terms;
};

// Returns the terms of all stages, in the order of the model. One rank of each stage passes the
// stage's TERMS; the other ranks pass none.
std::vector<Term> of_all_stages(runtime::Collectives& job, std::span<const Term> terms) {
    std::vector<Term> all;
    for (const std::string& bytes :
         job.all_gather(encode(StageTerms{{terms.begin(), terms.end()}}))) {
        const std::vector<Term> theirs = decode<StageTerms>(bytes).terms;
        all.insert(all.end(), theirs.begin(), theirs.end());
    }
    std::ranges::stable_sort(
        all, {}, [](const Term& term) { return std::pair(term.parameter, term.begin); });
    return all;
}

// Returns the TERMS of all ranks of a tensor group, ordered by parameter, then by rank, as if the
// ranks' shares followed each other. A parameter that is whole on all ranks counts only on the
// first rank.
std::vector<Term> of_all_shares(const graph::TensorRank& tensor, std::span<const Term> terms) {
    constexpr int64_t kNormSite = (int64_t{1} << 33) - 1;
    constexpr int64_t kNumbers = 3;
    const at::Tensor mine = at::empty({std::ssize(terms), kNumbers}, at::kDouble);
    double* number = mine.data_ptr<double>();
    for (const Term& term : terms) {
        *number++ = term.parameter;
        *number++ = static_cast<double>(term.begin);
        *number++ = term.squares;
    }
    std::vector<Term> all;
    const std::vector<at::Tensor> ranks = tensor.group->gather(mine, kNormSite);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const double* theirs = ranks[rank].data_ptr<double>();
        for (int64_t i = 0; i < ranks[rank].size(0); ++i, theirs += kNumbers) {
            const auto parameter = static_cast<size_t>(theirs[0]);
            const bool whole =
                tensor.plan->parameters[parameter].rule == plan::TensorRule::kReplicated;
            if (whole && rank > 0) continue;
            all.push_back(
                {static_cast<int>(theirs[0]), static_cast<int64_t>(theirs[1]), theirs[2]});
        }
    }
    std::ranges::stable_sort(all, {}, [](const Term& term) { return term.parameter; });
    // Numbers the blocks of a parameter consecutively over all shares, so that of_all_stages()
    // keeps their order.
    for (size_t i = 0, first = 0; i < all.size(); ++i) {
        if (all[i].parameter != all[first].parameter) first = i;
        all[i].begin = static_cast<int64_t>(i - first);
    }
    return all;
}

}  // namespace

GradientNorm::Result GradientNorm::compute(int64_t step, std::span<const double> squares,
                                           const PipelineScope& pipeline,
                                           const graph::TensorRank* tensor, bool over_hosts) {
    DSL_CHECK(squares.size() == mine_.size(), "there are {} sums for {} norm blocks",
              squares.size(), mine_.size());
    std::vector<double> partials = exchange(step, squares);
    if (over_hosts) average_over_hosts(partials);
    std::vector<Term> terms;
    for (size_t i = 0; i < partials.size(); ++i)
        terms.push_back({order_[i].parameter, order_[i].begin, partials[i]});
    if (tensor != nullptr) terms = of_all_shares(*tensor, terms);
    if (pipeline.job != nullptr) {
        const bool speaks = tensor == nullptr || tensor->group->rank() == 0;
        if (collectives_.topology().rank() > 0 || !speaks) terms.clear();
        std::erase_if(terms, [&](const Term& term) {
            return std::ranges::find(pipeline.counted_elsewhere, term.parameter) !=
                   pipeline.counted_elsewhere.end();
        });
        terms = of_all_stages(*pipeline.job, terms);
    }
    Result result;
    for (const Term& term : terms) {
        result.squares += term.squares;
        if (!std::isfinite(term.squares) && result.bad_parameter < 0)
            result.bad_parameter = term.parameter;
    }
    return result;
}

}  // namespace dslaunch::zero
