#include "plan/layout/partition.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include "base/check.h"

namespace dslaunch::plan {

int64_t Partition::owned_numel(int rank, int bucket) const {
    int64_t numel = 0;
    for (const ShardPiece& piece : buckets[bucket])
        if (piece.owner == rank) numel += piece.range.numel;
    return numel;
}

namespace {

// Appends a piece, or extends the last piece if the owner is the same.
void append(std::vector<ShardPiece>& pieces, int64_t numel, int owner) {
    if (numel == 0) return;
    if (!pieces.empty() && pieces.back().owner == owner) {
        pieces.back().range.numel += numel;
        return;
    }
    const int64_t begin = pieces.empty() ? 0 : pieces.back().range.end();
    pieces.push_back({{begin, numel}, owner});
}

int64_t padded_numel(const ParameterSlice& slice) {
    return round_up(slice.numel, kSliceAlignmentNumel);
}

// Cuts the bucket into world_size pieces of about equal size. Each cut is at the nearest block
// border.
std::vector<ShardPiece> cut_flat(const FlatLayout& layout, int bucket, int world_size) {
    const int64_t numel = layout.buckets[bucket].numel;
    std::vector<int64_t> borders;
    for (const LayoutBlock& block : blocks_of(layout, bucket)) borders.push_back(block.begin);
    borders.push_back(numel);
    std::vector<ShardPiece> pieces;
    int64_t begin = 0;
    for (int rank = 0; rank < world_size; ++rank) {
        const int64_t wanted = rank + 1 == world_size ? numel : numel * (rank + 1) / world_size;
        const auto above = std::lower_bound(borders.begin(), borders.end(), wanted);
        int64_t end = above == borders.end() ? numel : *above;
        if (above != borders.begin() && wanted - *(above - 1) < end - wanted) end = *(above - 1);
        end = std::max(end, begin);
        append(pieces, end - begin, rank);
        begin = end;
    }
    return pieces;
}

std::vector<ShardPiece> cut_rows(const FlatLayout& layout, const ModelInfo& model, int bucket,
                                 int world_size) {
    const Bucket& of = layout.buckets[bucket];
    std::vector<ShardPiece> pieces;
    for (int i = of.first_slice; i < of.end_slice; ++i) {
        const ParameterSlice& slice = layout.slices[i];
        const int64_t rows = model.parameters[slice.parameter].rows;
        const int64_t row_numel = rows > 0 ? slice.numel / rows : 0;
        int64_t left = padded_numel(slice);
        for (int rank = 0; rank < world_size; ++rank) {
            const int64_t mine = rows * (rank + 1) / world_size - rows * rank / world_size;
            const int64_t numel = rank + 1 == world_size ? left : mine * row_numel;
            append(pieces, numel, rank);
            left -= numel;
        }
    }
    return pieces;
}

// Returns the name of the unit that the parameter belongs to. The parameters of a unit (a segment,
// a module, or a single parameter) have the same owner.
std::string unit_name(const ParameterSlice& slice, const ModelInfo& model, ShardBy by) {
    if (by == ShardBy::kLayer) return std::to_string(slice.first_segment);
    const std::string& name = model.parameters[slice.parameter].name;
    if (by == ShardBy::kParameter) return name;
    return name.substr(0, name.rfind('.'));
}

// Returns the owner of each slice. Units are assigned in the order of falling size, each to the
// rank with the fewest elements so far.
std::vector<int> deal_out(const FlatLayout& layout, const ModelInfo& model, ShardBy by,
                          int world_size) {
    std::map<std::string, size_t> index_of;
    std::vector<int64_t> unit_numel;
    std::vector<size_t> unit_of;
    for (const ParameterSlice& slice : layout.slices) {
        const auto [found, fresh] =
            index_of.emplace(unit_name(slice, model, by), unit_numel.size());
        if (fresh) unit_numel.push_back(0);
        unit_of.push_back(found->second);
        unit_numel[found->second] += padded_numel(slice);
    }
    std::vector<size_t> by_numel(unit_numel.size());
    std::iota(by_numel.begin(), by_numel.end(), size_t{0});
    std::stable_sort(by_numel.begin(), by_numel.end(),
                     [&](size_t a, size_t b) { return unit_numel[a] > unit_numel[b]; });
    std::vector<int64_t> load(static_cast<size_t>(world_size), 0);
    std::vector<int> owner_of_unit(unit_numel.size(), 0);
    for (const size_t unit : by_numel) {
        const auto least = std::min_element(load.begin(), load.end());
        *least += unit_numel[unit];
        owner_of_unit[unit] = static_cast<int>(least - load.begin());
    }
    std::vector<int> owners;
    for (const size_t unit : unit_of) owners.push_back(owner_of_unit[unit]);
    return owners;
}

}  // namespace

Partition make_partition(const FlatLayout& layout, const ModelInfo& model, ShardBy by,
                         int world_size) {
    DSL_CHECK(world_size >= 1, "a partition among {} ranks is not possible", world_size);
    Partition partition;
    partition.world_size = world_size;
    std::vector<int> owners;
    if (by != ShardBy::kFlat && by != ShardBy::kRow)
        owners = deal_out(layout, model, by, world_size);
    for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b) {
        if (by == ShardBy::kFlat) {
            partition.buckets.push_back(cut_flat(layout, b, world_size));
        } else if (by == ShardBy::kRow) {
            partition.buckets.push_back(cut_rows(layout, model, b, world_size));
        } else {
            std::vector<ShardPiece> pieces;
            const Bucket& bucket = layout.buckets[b];
            for (int i = bucket.first_slice; i < bucket.end_slice; ++i)
                append(pieces, padded_numel(layout.slices[i]), owners[i]);
            partition.buckets.push_back(std::move(pieces));
        }
    }
    return partition;
}

PartitionBalance balance_of(const Partition& partition) {
    std::vector<int64_t> numel(static_cast<size_t>(partition.world_size), 0);
    PartitionBalance balance;
    for (const std::vector<ShardPiece>& pieces : partition.buckets) {
        balance.pieces += std::ssize(pieces);
        for (const ShardPiece& piece : pieces) numel[piece.owner] += piece.range.numel;
    }
    balance.numel_min = *std::min_element(numel.begin(), numel.end());
    balance.numel_max = *std::max_element(numel.begin(), numel.end());
    const auto total = static_cast<double>(std::accumulate(numel.begin(), numel.end(), int64_t{0}));
    if (total > 0)
        balance.imbalance = static_cast<double>(balance.numel_max) * partition.world_size / total;
    return balance;
}

}  // namespace dslaunch::plan
