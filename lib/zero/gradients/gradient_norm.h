// The computation of the gradients' global norm: which rank sums each block's squares, and in which
// order the sums are added, so that the result is the same at every ZeRO stage. Data path: shard
// map -> gradient norm -> ZeRO state. Thread: the communication lane.
#pragma once

#include <span>
#include <vector>

#include "runtime/comm/collectives.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "zero/states/shard_map.h"

namespace dslaunch::graph {
struct TensorRank;
}  // namespace dslaunch::graph

namespace dslaunch::zero {

// Neighbouring elements of a slice. One rank computes the sum of their squares.
struct NormBlock {
    int slice = 0;
    int bucket = 0;
    Range range;  // within the bucket; from stage 1 on, in one of this rank's pieces
};

// The arena's slices and signals for the norm, the same on all ranks of a host.
struct NormSlices {
    runtime::SliceId partials;
    runtime::SignalId done;
};

// The pipeline to which the state's stage belongs.
struct PipelineScope {
    runtime::Collectives* job = nullptr;  // the ranks of all stages; null: no pipeline
    // The parameters of this stage that an earlier stage has too. The norm and checkpoints use the
    // earlier stage's copy.
    std::vector<int> counted_elsewhere;
};

// Computes the norm; see the top of this file.
class GradientNorm {
  public:
    // Adds to ARENA the slices and signals that the norm needs.
    [[nodiscard]] static NormSlices add_slices(const plan::FlatLayout& layout, const ShardMap& map,
                                               runtime::ArenaLayout& arena);

    GradientNorm(const ShardMap& map, const plan::Partition* partition, const NormSlices& slices,
                 const runtime::Arena& arena, runtime::HostGroup& group,
                 runtime::Collectives& collectives);

    // The square of the norm, and a parameter whose gradient is not finite, if there is one.
    struct Result {
        double squares = 0;
        int bad_parameter = -1;  // the model's first parameter whose gradient is not finite
    };
    // Returns this rank's blocks, ordered by parameter, then by position in it.
    [[nodiscard]] std::span<const NormBlock> blocks() const { return mine_; }
    // Returns the square of the norm. SQUARES[i] is the sum of squares of blocks()[i]. STEP counts
    // from 1. All ranks of all pipeline stages and of the tensor group must call it. TENSOR is null
    // if there is no tensor group. A parameter that is whole on all ranks of the group is counted
    // once. If OVER_HOSTS is true, the hosts have different gradients, and the result is the mean
    // of the hosts' results.
    [[nodiscard]] Result compute(int64_t step, std::span<const double> squares,
                                 const PipelineScope& pipeline, const graph::TensorRank* tensor,
                                 bool over_hosts);

  private:
    struct Order {
        int parameter;  // index in the model
        int64_t begin;
        int slice;
        int owner;  // rank that sums the block, local at stage 0
    };
    void average_over_hosts(std::vector<double>& partials);
    [[nodiscard]] std::vector<double> exchange(int64_t step, std::span<const double> mine);

    const ShardMap& map_;
    NormSlices slices_;
    const runtime::Arena& arena_;
    runtime::HostGroup& group_;
    runtime::Collectives& collectives_;
    std::vector<Order> order_;     // all blocks, in the order in which they are added
    std::vector<NormBlock> mine_;  // this rank's blocks, in the same order
    int me_ = 0;
    int owners_ = 1;
};

}  // namespace dslaunch::zero
