// The map of one rank's part of a job: the pieces of each bucket whose optimizer states it owns,
// its host's part of the parameters, and the hosts that need each gradient. Data path: flat layout,
// partition, topology -> shard map -> parameter store, gradient sums, ZeRO state. Pure; const after
// construction.
#pragma once

#include <vector>

#include "plan/layout/flat_layout.h"
#include "plan/layout/partition.h"
#include "runtime/comm/ranks/node_ranges.h"
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::zero {

// A piece of a trained bucket that this rank updates.
struct OwnedPiece {
    int bucket = 0;
    Range range;               // within the bucket
    int64_t state_offset = 0;  // begin of its states in the rank's flat states, in elements
    // True if this rank writes its parameters. At stage 0 every rank keeps all states, and local
    // ranks share the writing.
    bool writes = true;
};

// Calls use(slice, its elements, where they begin in the bucket) for every slice that overlaps
// RANGE of a bucket. Padding is skipped.
template <typename Use>
void for_each_slice(const plan::FlatLayout& layout, int bucket, const Range& range, Use&& use) {
    const plan::Bucket& of = layout.buckets[static_cast<size_t>(bucket)];
    for (int i = of.first_slice; i < of.end_slice; ++i) {
        const plan::ParameterSlice& slice = layout.slices[static_cast<size_t>(i)];
        const int64_t begin = slice.offset_numel - of.offset_numel;
        const Range both = intersect(range, {begin, slice.numel});
        if (both.numel > 0) use(i, Range{both.begin - begin, both.numel}, both.begin);
    }
}

class ShardMap {
  public:
    // PARTITION is given from stage 1 on. PARAMETERS_OFFLOADED, at stage 3, means that every rank
    // keeps its own on disk, so they are gathered on one host too. SHARD_GROUP
    // and WHOLE_TENSORS are StepPlanOptions'. LAYOUT and PARTITION must outlive the map.
    ShardMap(const plan::FlatLayout& layout, const plan::Partition* partition, int stage,
             const runtime::Topology& topology, bool parameters_offloaded, int shard_group = 0,
             bool whole_tensors = false);

    [[nodiscard]] const plan::FlatLayout& layout() const { return layout_; }
    [[nodiscard]] const runtime::Topology& topology() const { return topology_; }
    [[nodiscard]] int stage() const { return stage_; }
    [[nodiscard]] bool several_hosts() const { return topology_.node_count() > 1; }
    // Returns the ranks that share one sharded copy: all, or this rank's group of them.
    [[nodiscard]] const runtime::Topology& owners() const { return owners_; }
    // Returns the global rank of the first of these.
    [[nodiscard]] int first_owner() const { return topology_.rank() - owners_.rank(); }
    // Returns the number of copies that hosts or groups of ranks hold; copy() is this rank's.
    [[nodiscard]] int copies() const {
        if (stage_ == 0) return topology_.node_count();
        return topology_.world_size() / owners_.world_size();
    }
    [[nodiscard]] int copy() const {
        return stage_ == 0 ? topology_.node_rank : topology_.rank() / owners_.world_size();
    }
    [[nodiscard]] bool shards_over_hosts() const { return owners_.node_count() > 1; }
    // True if every host has all of it: at stage 0, or if each host holds a copy.
    [[nodiscard]] bool copies_on_hosts() const { return stage_ == 0 || !shards_over_hosts(); }

    // Returns this rank's pieces of a trained bucket; at stage 0, other ranks' writes come first.
    [[nodiscard]] const std::vector<OwnedPiece>& pieces(int bucket) const {
        return pieces_[bucket];
    }
    [[nodiscard]] int64_t state_numel() const { return state_numel_; }
    // Returns the first element of a trained bucket's states among the rank's.
    [[nodiscard]] int64_t state_begin(int bucket) const { return state_begins_[bucket]; }

    [[nodiscard]] bool parameters_offloaded() const { return parameters_offloaded_; }
    // True if a bucket's parameters are whole on a host only while they are gathered.
    [[nodiscard]] bool is_gathered(int bucket) const;
    // Returns the hosts, of owners(), that keep each range of a bucket. REQUIRES: stage >= 1.
    [[nodiscard]] const std::vector<runtime::NodeRange>& node_ranges(int bucket) const {
        return node_ranges_[bucket];
    }
    // Returns the hosts that need each range of a bucket's reduced gradients: node_ranges() and the
    // flags after them, which every host needs. An empty list sends everything to everybody.
    [[nodiscard]] std::vector<runtime::NodeRange> gradient_destinations(int bucket) const;

    // shard_numel() counts the elements of all gathered buckets that this host keeps, and
    // shard_offset() is an element's place among them. REQUIRES: the element is kept here.
    [[nodiscard]] int64_t shard_numel() const { return shard_numel_; }
    [[nodiscard]] int64_t shard_offset(int bucket, int64_t element) const;
    // Returns ranges of a gathered bucket that this rank copies into the gathered whole.
    [[nodiscard]] std::vector<Range> own_ranges(int bucket) const;

  private:
    [[nodiscard]] Range written_at_stage_0(int bucket) const;
    void add_replicated_pieces(int bucket);
    void add_sharded_pieces(int bucket);

    const plan::FlatLayout& layout_;
    const plan::Partition* partition_;
    int stage_;
    runtime::Topology topology_;
    runtime::Topology owners_;
    bool parameters_offloaded_;
    bool whole_tensors_;
    std::vector<int64_t> state_begins_;
    std::vector<int> node_of_rank_;
    std::vector<std::vector<OwnedPiece>> pieces_;
    std::vector<std::vector<runtime::NodeRange>> node_ranges_;
    std::vector<int64_t> shard_base_;  // one per bucket
    int64_t state_numel_ = 0;
    int64_t shard_numel_ = 0;
};

}  // namespace dslaunch::zero
