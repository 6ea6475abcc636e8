// The global norm of the gradients: the rank that sums each block's squares, and the order in which
// they are added: the same at every ZeRO stage. Data path: shard map -> gradient norm -> ZeRO
// state. Thread: the communication lane.
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

struct NormBlock {
    int slice = 0;
    int bucket = 0;
    Range range;  // within the bucket; from stage 1 on, in one of this rank's pieces
};

struct NormSlices {
    runtime::SliceId partials;
    runtime::SignalId done;
};

// The pipeline that a state's stage belongs to.
struct PipelineScope {
    runtime::Collectives* job = nullptr;  // the ranks of all stages; null: no pipeline
    // Parameters that an earlier stage has too. The norm and checkpoints take them from there.
    std::vector<int> counted_elsewhere;
};

class GradientNorm {
  public:
    [[nodiscard]] static NormSlices add_slices(const plan::FlatLayout& layout, const ShardMap& map,
                                               runtime::ArenaLayout& arena);

    GradientNorm(const ShardMap& map, const plan::Partition* partition, const NormSlices& slices,
                 const runtime::Arena& arena, runtime::HostGroup& group,
                 runtime::Collectives& collectives);

    struct Result {
        double squares = 0;
        int bad_parameter = -1;  // the model's first parameter whose gradient is not finite
    };
    // Returns this rank's blocks, by parameter and by place in it.
    [[nodiscard]] std::span<const NormBlock> blocks() const { return mine_; }
    // Returns the norm's squares. SQUARES has the sum of squares of each of blocks(). STEP counts
    // from 1. Every rank calls it, in all stages of a pipeline and in the TENSOR group. TENSOR is
    // null if there is no group. A parameter that all ranks of the group hold whole is counted
    // once. OVER_HOSTS: hosts have gradients of their own, and the squares are their mean over
    // hosts.
    [[nodiscard]] Result compute(int64_t step, std::span<const double> squares,
                                 const PipelineScope& pipeline, const graph::TensorRank* tensor,
                                 bool over_hosts);

  private:
    struct Order {
        int parameter;  // index in the model
        int64_t begin;
        int slice;
        int owner;  // local rank or rank that sums it
    };
    void average_over_hosts(std::vector<double>& partials);
    [[nodiscard]] std::vector<double> exchange(int64_t step, std::span<const double> mine);

    const ShardMap& map_;
    NormSlices slices_;
    const runtime::Arena& arena_;
    runtime::HostGroup& group_;
    runtime::Collectives& collectives_;
    std::vector<Order> order_;     // all blocks, in the order in which they are added
    std::vector<NormBlock> mine_;  // this rank's blocks, in that order
    int me_ = 0;
    int owners_ = 1;
};

}  // namespace dslaunch::zero
