// One rank's view of how a job's state is divided: the pieces of each bucket whose optimizer states
// it owns, its host's part of the parameters, and the hosts that need each gradient. Data path:
// flat layout, partition, topology -> shard map -> parameter store, gradient sums, ZeRO state.
// Pure; const after construction.
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
    int64_t state_offset = 0;  // its states' offset in the rank's flat states, in elements
    // True if this rank writes the parameters of the piece. At stage 0 every rank keeps all states,
    // and local ranks divide the writing among them.
    bool writes = true;
};

// Calls use(slice, elements of the slice, position of the first element in the bucket) for every
// slice that overlaps RANGE of a bucket. Padding is skipped.
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

// Divides a state; see the top of this file.
class ShardMap {
  public:
    // PARTITION is given from stage 1 on. PARAMETERS_OFFLOADED, at stage 3, means that every rank
    // keeps its parameters on disk, so they must be gathered on a single host too. SHARD_GROUP and
    // WHOLE_TENSORS are the fields of StepPlanOptions. LAYOUT and PARTITION must outlive the map.
    ShardMap(const plan::FlatLayout& layout, const plan::Partition* partition, int stage,
             const runtime::Topology& topology, bool parameters_offloaded, int shard_group = 0,
             bool whole_tensors = false);

    [[nodiscard]] const plan::FlatLayout& layout() const { return layout_; }
    [[nodiscard]] const runtime::Topology& topology() const { return topology_; }
    [[nodiscard]] int stage() const { return stage_; }
    [[nodiscard]] bool several_hosts() const { return topology_.node_count() > 1; }
    // Returns the ranks among which one copy is sharded: all ranks, or this rank's group.
    [[nodiscard]] const runtime::Topology& owners() const { return owners_; }
    // Returns the global rank of the first of owners().
    [[nodiscard]] int first_owner() const { return topology_.rank() - owners_.rank(); }
    // Returns the number of copies of the state. Each copy is held by a host or a group of ranks.
    [[nodiscard]] int copies() const {
        if (stage_ == 0) return topology_.node_count();
        return topology_.world_size() / owners_.world_size();
    }
    // Returns the index of this rank's copy, from 0.
    [[nodiscard]] int copy() const {
        return stage_ == 0 ? topology_.node_rank : topology_.rank() / owners_.world_size();
    }
    // Returns true if one copy is sharded over several hosts.
    [[nodiscard]] bool shards_over_hosts() const { return owners_.node_count() > 1; }
    // Returns true if every host has all states: at stage 0, or if each host holds a copy.
    [[nodiscard]] bool copies_on_hosts() const { return stage_ == 0 || !shards_over_hosts(); }

    // Returns this rank's pieces of a trained bucket; at stage 0, the pieces that other ranks write
    // come first.
    [[nodiscard]] const std::vector<OwnedPiece>& pieces(int bucket) const {
        return pieces_[bucket];
    }
    // Returns the number of elements, including padding, whose optimizer states this rank owns.
    [[nodiscard]] int64_t state_numel() const { return state_numel_; }
    // Returns the offset of a trained bucket's states among all states of this rank.
    [[nodiscard]] int64_t state_begin(int bucket) const { return state_begins_[bucket]; }

    // Returns true if each rank keeps its parameters on disk.
    [[nodiscard]] bool parameters_offloaded() const { return parameters_offloaded_; }
    // Returns true if this host keeps a bucket's parameters only in part, and has all of them only
    // while the bucket is gathered.
    [[nodiscard]] bool is_gathered(int bucket) const;
    // Returns true if is_gathered() is true for any bucket. The answer is the same on all hosts,
    // also on a host that keeps no element.
    [[nodiscard]] bool gathers() const;
    // Returns the hosts that keep each range of a bucket, numbered as in owners(). REQUIRES: stage
    // >= 1.
    [[nodiscard]] const std::vector<runtime::NodeRange>& node_ranges(int bucket) const {
        return node_ranges_[bucket];
    }
    // Returns the hosts that need each range of a bucket's reduced gradients. For the gradients,
    // they are the hosts of node_ranges(). The usage flags are stored after the gradients, and all
    // hosts need them. An empty list means that all hosts need everything.
    [[nodiscard]] std::vector<runtime::NodeRange> gradient_destinations(int bucket) const;

    // shard_numel() returns how many elements of all gathered buckets this host keeps.
    // shard_offset() returns the position of ELEMENT among them. REQUIRES: this host keeps ELEMENT.
    [[nodiscard]] int64_t shard_numel() const { return shard_numel_; }
    [[nodiscard]] int64_t shard_offset(int bucket, int64_t element) const;
    // Returns the ranges of a gathered bucket that this rank copies into the buffer.
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
