// The way of gradients from autograd to the update: collected into buckets of the arena, posted,
// summed over all ranks in a fixed order, and kept or added up over micro steps if the plan says
// so. Data path: gradient collector -> gradient sums -> ZeRO state. It carries out Claim, Post,
// Reduce and Accumulate. Threads: the compute lane calls claim, post and end_segment, the
// communication lane the rest. The plan's waits order them.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "device/device.h"
#include "graph/archive/model.h"
#include "graph/tensor/tensor_rank.h"
#include "plan/step/step_plan.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/arena.h"
#include "zero/gradients/gradient_collector.h"
#include "zero/parameters/parameter_store.h"
#include "zero/states/shard_map.h"

namespace dslaunch::zero {

struct GradientOptions {
    // True if Accumulate keeps the reduced gradients of this rank's pieces, or adds them up over
    // micro steps (StepPlanOptions::keeps_reduced). The caller has memory for them.
    bool keep = false;
    // True if a branch or loop of the model may leave a parameter out in one step and not in
    // another. On a device the ranks then tell each other in every step, otherwise only in the
    // first; on the host they always do.
    bool usage_varies = true;
    // The tensor group. Gradients that are summands in it are summed over it when they are posted.
    // Null means that there is no group.
    const graph::TensorRank* tensor = nullptr;
    // The packing of gradients between hosts, and whether this rank keeps rounding errors.
    WirePacking packing = WirePacking::kNone;
    bool keeps_errors = false;
    double predivide = 1;  // HostWire::predivide
    // True if gradients of the ranks are added up, not averaged. REQUIRES then: no scope on_host.
    bool adds_ranks = false;
};

// The sums of a step.
struct SumScope {
    // True if there is no Reduce: the user of the sums makes them, from the gradients of the host's
    // ranks.
    bool fused = false;
    // True if sums are over only this host's ranks, times the number of hosts, so that the mean
    // over hosts is the mean over all ranks. The flags of usage are not summed then.
    bool on_host = false;
};

class GradientSums {
  public:
    // BUFFER_OF_BUCKET and BUFFER_NUMEL are the StepPlan's. Empty: every bucket has its own memory.
    [[nodiscard]] static std::vector<runtime::BucketId> add_slices(
        const plan::FlatLayout& layout, std::span<const int> buffer_of_bucket,
        std::span<const int64_t> buffer_numel, runtime::ArenaLayout& arena);

    // The buckets are memory of DEVICE.
    GradientSums(const graph::Model& model, const ShardMap& map,
                 std::vector<runtime::BucketId> buckets, std::span<const int> buffer_of_bucket,
                 const TensorDevice& device, runtime::Collectives& collectives,
                 const GradientOptions& options);

    void begin_step();
    // Called between steps.
    void set_scope(const SumScope& scope) { scope_ = scope; }
    void claim(int bucket);
    // Completes a tied bucket's gradients and returns them, before they are posted.
    [[nodiscard]] std::span<float> complete_tied(int bucket);
    void post(int bucket);
    // Carries out a Reduce of STEP, by which rounding between hosts is drawn.
    void reduce(const plan::Instruction& reduce, int64_t step);
    // Returns the memory of the rounding errors that are kept.
    [[nodiscard]] Bytes error_bytes() const;
    // begin_accumulate() and end_accumulate() bracket the reduced gradients of a micro step of a
    // bucket. In between, accumulate() writes the elements of RANGE, which lies in one of this
    // rank's pieces, to INTO. After the first micro step of the step it adds to the values there.
    void begin_accumulate(int bucket);
    void accumulate(int bucket, const Range& range, float* into) const;
    void end_accumulate(int bucket);
    // True in the first micro step of the bucket at hand.
    [[nodiscard]] bool first_micro_step() const { return first_micro_step_; }
    // Returns the lender of memory for the backwards of the compute lane. Null on a GPU: LibTorch's
    // allocator serves its memory.
    [[nodiscard]] runtime::MemoryLender* memory() {
        return device_.device->is_host() ? &collector_->lender() : nullptr;
    }
    [[nodiscard]] bool has_gradient(int slice) const { return collector_->has_gradient(slice); }
    void begin_backward(int micro_step) { collector_->begin_backward(micro_step); }
    void end_segment(int segment) { collector_->end_segment(segment); }

    // Makes the sums of a bucket readable. It precedes for_each_in and used, once a step.
    void open(int bucket);
    // Returns one flag for each slice of an open bucket, above 0 if any rank had a gradient in this
    // step. Every rank calls it.
    [[nodiscard]] std::vector<float> used(int bucket);
    // Calls use(range, gradients, scale) for pieces of RANGE, in order. RANGE lies in one of this
    // rank's pieces of an open bucket. The gradients are pointers to that range's elements, to be
    // summed in order and multiplied by SCALE. REQUIRES: the sums are not kept, or the bucket is
    // between begin_accumulate and end_accumulate.
    template <typename Use>
    void for_each_in(int bucket, const Range& range, Use&& use) const;
    // Says that the sums are no longer read.
    void close(int bucket);

    // This rank's own gradients of a bucket that it has claimed, [numel] fp32.
    [[nodiscard]] std::span<float> own(int bucket) const {
        return collectives_.bucket(buckets_[bucket]);
    }

    // Brings fp32 values of all ranks' pieces together, bucket by bucket. put(bucket, whole) writes
    // this rank's pieces to their places in the device's memory, and use(bucket, whole) gets the
    // whole bucket, in the host's, on every rank. If BUCKETS is given, only these are brought.
    // Every rank calls it, outside of a step.
    template <typename Put, typename Use>
    void collect(Put&& put, Use&& use, const std::set<int>* buckets = nullptr);

  private:
    [[nodiscard]] const plan::Bucket& bucket(int b) const { return map_.layout().buckets[b]; }
    [[nodiscard]] device::Queue& queue() const { return device_.device->communication(); }
    // Returns the factor of a sum over ranks.
    [[nodiscard]] float mean() const {
        if (options_.adds_ranks) return 1.0F;
        const int parts = scope_.on_host ? map_.topology().node_count() : 1;
        return static_cast<float>(parts) / static_cast<float>(map_.topology().world_size());
    }
    [[nodiscard]] std::vector<at::Tensor> views(const graph::Model& model) const;
    void begin_generation(int bucket);
    void sum_over_tensor_ranks(int bucket) const;
    // True if a Reduce leaves each owner's sums in place of its gradients: at stage 1 on one host.
    [[nodiscard]] bool sums_in_place() const {
        return map_.stage() > 0 && !map_.several_hosts() && !scope_.fused && !scope_.on_host;
    }
    [[nodiscard]] runtime::ReducedParts await_parts(int bucket);
    [[nodiscard]] std::vector<float> agree_on_usage(int bucket);
    [[nodiscard]] std::span<float> begin_collect(int bucket);
    void post_collected(int bucket);
    void complete(int bucket);
    [[nodiscard]] std::vector<float> take_whole(int bucket);

    const ShardMap& map_;
    std::vector<runtime::BucketId> buckets_;
    std::vector<int> buffer_of_bucket_;
    std::vector<int> bucket_in_buffer_;  // the bucket that used it last; -1: none
    TensorDevice device_;
    runtime::Collectives& collectives_;
    GradientOptions options_;
    SumScope scope_;
    std::unique_ptr<GradientCollector> collector_;
    bool first_micro_step_ = true;
    std::vector<runtime::Generation> generations_;  // one per bucket
    std::vector<runtime::ReducedParts> parts_;      // one per bucket, filled while it is open
    std::vector<std::vector<const float*>> sources_;
    std::vector<std::vector<float>> used_;  // one per bucket, over the micro steps that are kept
    // The flags of a bucket on a device, as far as they are known.
    struct Usage {
        std::vector<float> mine;         // this rank's, in this generation
        std::vector<float> mine_before;  // this rank's, when the ranks told each other first
        std::vector<float> sums;         // of all ranks, then
    };
    std::vector<Usage> usage_;                // one per bucket
    std::vector<std::vector<float>> errors_;  // one per bucket, empty unless they are kept
};

template <typename Use>
void GradientSums::for_each_in(int bucket, const Range& range, Use&& use) const {
    const auto b = static_cast<size_t>(bucket);
    if (scope_.fused) {
        std::vector<const float*> gradients;
        for (const float* source : sources_[b]) gradients.push_back(source + range.begin);
        use(range, std::span<const float* const>(gradients), mean());
    } else if (sums_in_place()) {
        const float* const sum = own(bucket).data() + range.begin;
        use(range, std::span<const float* const>(&sum, 1), 1.0F);
    } else {
        parts_[b].for_each_in(range, [&](const Range& part, std::span<const float> values) {
            const float* const sum = values.data();
            use(part, std::span<const float* const>(&sum, 1), 1.0F);
        });
    }
}

template <typename Put, typename Use>
void GradientSums::collect(Put&& put, Use&& use, const std::set<int>* buckets) {
    for (int b = 0; b < map_.layout().trained_buckets; ++b) {
        if (buckets != nullptr && buckets->count(b) == 0) continue;
        put(b, begin_collect(b));
        post_collected(b);
        use(b, std::span<const float>(take_whole(b)));
    }
}

}  // namespace dslaunch::zero
