// What one rank of a job keeps and where: the pieces of each bucket whose optimizer states are its
// own, what its host keeps of the parameters, and which host needs which gradients. Where it
// stands: flat layout, partition, topology -> shard map -> parameter store, gradient sums, ZeRO
// state. Pure; const after construction.
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
    int64_t state_offset = 0;  // where its states begin in the rank's flat states, in elements
    // Whether this rank writes its parameters. At stage 0 every rank keeps all states, and local
    // ranks share the writing.
    bool writes = true;
};

class ShardMap {
  public:
    // PARTITION: from stage 1 on. PARAMETERS_OFFLOADED: at stage 3, every rank keeps its own on
    // disk, so that they are gathered on one host too. ON_HOST: as StepPlanOptions::shard_on_host.
    // LAYOUT and PARTITION must outlive the map.
    ShardMap(const plan::FlatLayout& layout, const plan::Partition* partition, int stage,
             const runtime::Topology& topology, bool parameters_offloaded, bool on_host = false);

    [[nodiscard]] const plan::FlatLayout& layout() const { return layout_; }
    [[nodiscard]] const runtime::Topology& topology() const { return topology_; }
    [[nodiscard]] int stage() const { return stage_; }
    [[nodiscard]] bool several_hosts() const { return topology_.node_count() > 1; }
    // The ranks that shard one copy: all, or those of this host.
    [[nodiscard]] const runtime::Topology& owners() const { return owners_; }
    [[nodiscard]] bool shards_over_hosts() const { return owners_.node_count() > 1; }
    // Whether every host has all of it: at stage 0, or where hosts hold copies.
    [[nodiscard]] bool copies_on_hosts() const { return stage_ == 0 || !shards_over_hosts(); }

    // This rank's pieces of a trained bucket. At stage 0 those that others write come first.
    [[nodiscard]] const std::vector<OwnedPiece>& pieces(int bucket) const {
        return pieces_[bucket];
    }
    [[nodiscard]] int64_t state_numel() const { return state_numel_; }
    // Where the states of a trained bucket begin in them.
    [[nodiscard]] int64_t state_begin(int bucket) const { return state_begins_[bucket]; }

    [[nodiscard]] bool parameters_offloaded() const { return parameters_offloaded_; }
    // Whether a bucket's parameters are whole on a host only while they are gathered.
    [[nodiscard]] bool is_gathered(int bucket) const;
    // Which host keeps which of a bucket's elements. REQUIRES: stage >= 1.
    [[nodiscard]] const std::vector<runtime::NodeRange>& node_ranges(int bucket) const {
        return node_ranges_[bucket];
    }
    // The same with the flags behind them, which every host needs: where reduced gradients go.
    // Empty: everything to everybody.
    [[nodiscard]] std::vector<runtime::NodeRange> gradient_destinations(int bucket) const;

    // Gathered buckets: elements that this host keeps, over all of them, and where an element that
    // it keeps lies among them. REQUIRES: the element is kept here.
    [[nodiscard]] int64_t shard_numel() const { return shard_numel_; }
    [[nodiscard]] int64_t shard_offset(int bucket, int64_t element) const;
    // Ranges of a gathered bucket that this rank copies into the gathered whole.
    [[nodiscard]] std::vector<Range> own_ranges(int bucket) const;

  private:
    void add_replicated_pieces(int bucket);
    void add_sharded_pieces(int bucket);

    const plan::FlatLayout& layout_;
    const plan::Partition* partition_;
    int stage_;
    runtime::Topology topology_;
    runtime::Topology owners_;
    bool parameters_offloaded_;
    std::vector<int64_t> state_begins_;
    std::vector<int> node_of_rank_;
    std::vector<std::vector<OwnedPiece>> pieces_;
    std::vector<std::vector<runtime::NodeRange>> node_ranges_;
    std::vector<int64_t> shard_base_;  // of each bucket
    int64_t state_numel_ = 0;
    int64_t shard_numel_ = 0;
};

}  // namespace dslaunch::zero
