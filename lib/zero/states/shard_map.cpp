#include "zero/states/shard_map.h"

#include <numeric>

#include "base/check.h"

namespace dslaunch::zero {

namespace {

// Returns the topology of this rank's group, which consists of RANKS neighbouring ranks.
runtime::Topology group_of(const runtime::Topology& topology, int ranks) {
    std::vector<int> members(static_cast<size_t>(ranks));
    std::iota(members.begin(), members.end(), topology.rank() / ranks * ranks);
    return runtime::Topology::of_member(topology.node_sizes, members, topology.rank());
}

}  // namespace

ShardMap::ShardMap(const plan::FlatLayout& layout, const plan::Partition* partition, int stage,
                   const runtime::Topology& topology, bool parameters_offloaded, int shard_group,
                   bool whole_tensors)
    : layout_(layout),
      partition_(partition),
      stage_(stage),
      topology_(topology),
      owners_(shard_group > 0 ? group_of(topology, shard_group) : topology),
      parameters_offloaded_(parameters_offloaded),
      whole_tensors_(whole_tensors) {
    DSL_CHECK(stage == 0 || partition != nullptr, "stage {} needs a partition", stage);
    for (int node = 0; node < owners_.node_count(); ++node)
        node_of_rank_.insert(node_of_rank_.end(), static_cast<size_t>(owners_.node_sizes[node]),
                             node);
    for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b) {
        node_ranges_.emplace_back();
        shard_base_.push_back(shard_numel_);
        if (stage > 0) {
            for (const plan::ShardPiece& piece : partition->buckets[b]) {
                const int node = node_of_rank_[piece.owner];
                std::vector<runtime::NodeRange>& ranges = node_ranges_.back();
                if (!ranges.empty() && ranges.back().node == node) {
                    ranges.back().range.numel += piece.range.numel;
                } else {
                    ranges.push_back({piece.range, node});
                }
                // Offloaded parameters are on each rank's disk, not in the host's memory.
                const bool in_memory = is_gathered(b) && !parameters_offloaded;
                if (in_memory && node == owners_.node_rank) shard_numel_ += piece.range.numel;
            }
        }
        if (b >= layout.trained_buckets) continue;
        pieces_.emplace_back();
        state_begins_.push_back(state_numel_);
        if (stage == 0) {
            add_replicated_pieces(b);
        } else {
            add_sharded_pieces(b);
        }
    }
}

// Returns the part of a bucket that this rank writes at stage 0, where every rank keeps all states.
Range ShardMap::written_at_stage_0(int bucket) const {
    const plan::Bucket& of = layout_.buckets[bucket];
    const Range part = part_range(of.numel, {topology_.local_rank, topology_.local_world_size()});
    if (!whole_tensors_) return part;
    // A tensor is written by the rank whose part contains its first element.
    const auto first_begin = [&](int64_t element) {
        for (int i = of.first_slice; i < of.end_slice; ++i) {
            const int64_t begin = layout_.slices[i].offset_numel - of.offset_numel;
            if (begin >= element) return begin;
        }
        return of.numel;
    };
    const int64_t begin = first_begin(part.begin);
    return {begin, first_begin(part.end()) - begin};
}

void ShardMap::add_replicated_pieces(int bucket) {
    const int64_t numel = layout_.buckets[bucket].numel;
    const Range own = written_at_stage_0(bucket);
    const auto add = [&](const Range& range, bool writes) {
        if (range.numel > 0)
            pieces_.back().push_back({bucket, range, state_numel_ + range.begin, writes});
    };
    add({0, own.begin}, false);
    add({own.end(), numel - own.end()}, false);
    add(own, true);
    state_numel_ += numel;
}

void ShardMap::add_sharded_pieces(int bucket) {
    for (const plan::ShardPiece& piece : partition_->buckets[bucket]) {
        if (piece.owner != owners_.rank()) continue;
        pieces_.back().push_back({bucket, piece.range, state_numel_, true});
        state_numel_ += round_up(piece.range.numel, plan::kSliceAlignmentNumel);
    }
}

bool ShardMap::is_gathered(int bucket) const {
    return stage_ == 3 && (shards_over_hosts() || parameters_offloaded_) &&
           layout_.buckets[bucket].kind != plan::BucketKind::kPersistent;
}

bool ShardMap::gathers() const {
    for (int b = 0; b < static_cast<int>(layout_.buckets.size()); ++b)
        if (is_gathered(b)) return true;
    return false;
}

std::vector<runtime::NodeRange> ShardMap::gradient_destinations(int bucket) const {
    if (copies_on_hosts()) return {};
    std::vector<runtime::NodeRange> ranges = node_ranges(bucket);
    const plan::Bucket& of = layout_.buckets[bucket];
    ranges.push_back({{of.numel, plan::flag_numel(of)}, runtime::kEveryNode});
    return ranges;
}

int64_t ShardMap::shard_offset(int bucket, int64_t element) const {
    int64_t offset = shard_base_[bucket];
    for (const runtime::NodeRange& kept : node_ranges(bucket)) {
        if (kept.node != owners_.node_rank) continue;
        if (element < kept.range.end()) {
            DSL_CHECK(element >= kept.range.begin,
                      "element {} of bucket {} is not kept on this node", element, bucket);
            return offset + element - kept.range.begin;
        }
        offset += kept.range.numel;
    }
    DSL_CHECK(false, "element {} of bucket {} is not kept on this node", element, bucket);
}

std::vector<Range> ShardMap::own_ranges(int bucket) const {
    std::vector<Range> ranges;
    for (const plan::ShardPiece& piece : partition_->buckets[bucket])
        if (piece.owner == owners_.rank()) ranges.push_back(piece.range);
    return ranges;
}

}  // namespace dslaunch::zero
