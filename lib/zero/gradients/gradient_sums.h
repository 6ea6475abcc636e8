// The path of gradients from autograd to the update: they are collected in buckets of the arena,
// posted, summed over all ranks in a fixed order, and kept or accumulated over micro steps if the
// plan says so. Data path: gradient collector -> gradient sums -> ZeRO state. It carries out Claim,
// Post, Reduce and Accumulate. Threads: the compute lane calls claim, post and end_segment, the
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

// The settings of the sums.
struct GradientOptions {
    // True if Accumulate writes the reduced gradients of this rank's pieces to memory of the
    // caller, and adds later micro steps to them (StepPlanOptions::keeps_reduced).
    bool keep = false;
    // True if a branch or loop of the model may use a parameter in one step and not in another.
    // Ranks with devices then exchange in every step which parameters got a gradient, otherwise
    // only in the first step. Ranks on hosts exchange it in every step.
    bool usage_varies = true;
    // The tensor group, null if there is none. If each of its ranks has only a summand of a
    // gradient, the gradient is summed over the group when it is posted.
    const graph::TensorRank* tensor = nullptr;
    // The packing of gradients between hosts, and whether this rank keeps the rounding errors.
    WirePacking packing = WirePacking::kNone;
    bool keeps_errors = false;
    double predivide = 1;  // HostWire::predivide
    // True if the gradients of the ranks are added, not averaged. SumScope::on_host must then be
    // false.
    bool adds_ranks = false;
};

// The ranks over which a step's gradients are summed, and the code that sums them.
struct SumScope {
    // True if the plan has no Reduce. The reader of the sums then computes them from the gradients
    // of the host's ranks.
    bool fused = false;
    // True if gradients are summed over the ranks of this host only. The sums are then multiplied
    // by the number of hosts, so that their mean over the hosts is the result over all ranks. The
    // usage flags are not summed then.
    bool on_host = false;
};

// Sums gradients; see the top of this file.
class GradientSums {
  public:
    // Adds the buckets and their memory to an arena. BUFFER_OF_BUCKET and BUFFER_NUMEL are the
    // members of StepPlan with these names. If they are empty, every bucket has memory of its own.
    [[nodiscard]] static std::vector<runtime::BucketId> add_slices(
        const plan::FlatLayout& layout, std::span<const int> buffer_of_bucket,
        std::span<const int64_t> buffer_numel, runtime::ArenaLayout& arena);

    // The memory of BUCKETS belongs to DEVICE.
    GradientSums(const graph::Model& model, const ShardMap& map,
                 std::vector<runtime::BucketId> buckets, std::span<const int> buffer_of_bucket,
                 const TensorDevice& device, runtime::Collectives& collectives,
                 const GradientOptions& options);

    // Forgets which parameters got a gradient in the last step.
    void begin_step();
    // Sets the scope for the next steps. Called between steps.
    void set_scope(const SumScope& scope) { scope_ = scope; }
    // Waits until no rank reads the bucket's memory, and begins its next generation.
    void claim(int bucket);
    // Completes the gradients of a tied bucket and returns them, before they are posted.
    [[nodiscard]] std::span<float> complete_tied(int bucket);
    // Completes the gradients of a bucket, unless it is tied, and posts them to the other ranks.
    void post(int bucket);
    // Carries out a Reduce of STEP. STEP is part of the seed for rounding between hosts.
    void reduce(const plan::Instruction& reduce, int64_t step);
    // Returns the bytes of the rounding errors that are kept.
    [[nodiscard]] Bytes error_bytes() const;
    // These three calls handle a bucket's reduced gradients of one micro step, in this order.
    // accumulate() is called for each RANGE, which must lie in one of this rank's pieces. It writes
    // the gradients of RANGE to INTO or, after the step's first micro step, adds them to INTO.
    void begin_accumulate(int bucket);
    void accumulate(int bucket, const Range& range, float* into) const;
    void end_accumulate(int bucket);
    // Returns true while the current bucket has the gradients of the step's first micro step.
    [[nodiscard]] bool first_micro_step() const { return first_micro_step_; }
    // Returns the lender of memory for backward passes of the compute lane. Null on a GPU, where
    // LibTorch's allocator provides the memory.
    [[nodiscard]] runtime::MemoryLender* memory() {
        return device_.device->is_host() ? &collector_->lender() : nullptr;
    }
    // These three calls go to the collector of gradients (gradient_collector.h).
    [[nodiscard]] bool has_gradient(int slice) const { return collector_->has_gradient(slice); }
    void begin_backward(int micro_step) { collector_->begin_backward(micro_step); }
    void end_segment(int segment) { collector_->end_segment(segment); }

    // Makes the sums of a bucket readable. Called once a step, before for_each_in() and used().
    void open(int bucket);
    // Returns one flag for each slice of an open bucket: above 0 if any rank had a gradient in this
    // step. Every rank calls it.
    [[nodiscard]] std::vector<float> used(int bucket);
    // Calls use(range, gradients, scale) for consecutive parts of RANGE, which must lie in one of
    // this rank's pieces of an open bucket. GRADIENTS are pointers to the elements of the part, to
    // be summed in order and multiplied by SCALE. REQUIRES: the sums are not kept, or the call is
    // between begin_accumulate() and end_accumulate() of the bucket.
    template <typename Use>
    void for_each_in(int bucket, const Range& range, Use&& use) const;
    // Reports that the sums are no longer read.
    void close(int bucket);

    // Returns this rank's own gradients of a bucket that it has claimed, [numel] fp32.
    [[nodiscard]] std::span<float> own(int bucket) const {
        return collectives_.bucket(sums_[bucket].id);
    }

    // Gathers fp32 values from all ranks' pieces, bucket by bucket. put(bucket, whole) writes this
    // rank's pieces at their places in WHOLE, in the device's memory. use(bucket, whole) gets the
    // whole bucket, in the host's memory, on every rank. If BUCKETS is given, gathers only these
    // buckets. Every rank calls this function, outside of a step.
    template <typename Put, typename Use>
    void collect(Put&& put, Use&& use, const std::set<int>* buckets = nullptr);

  private:
    [[nodiscard]] const plan::Bucket& bucket(int b) const { return map_.layout().buckets[b]; }
    [[nodiscard]] device::Queue& queue() const { return device_.device->communication(); }
    // Returns the factor by which a sum over ranks is multiplied.
    [[nodiscard]] float mean() const {
        if (options_.adds_ranks) return 1.0F;
        const int parts = scope_.on_host ? map_.topology().node_count() : 1;
        return static_cast<float>(parts) / static_cast<float>(map_.topology().world_size());
    }
    [[nodiscard]] std::vector<at::Tensor> views(const graph::Model& model) const;
    void begin_generation(int bucket);
    void sum_over_tensor_ranks(int bucket) const;
    // Returns true if a Reduce overwrites the gradients of a rank's own elements by their sums over
    // the ranks. This needs stage 1 or higher, and only one host.
    [[nodiscard]] bool sums_in_place() const {
        return map_.stage() > 0 && !map_.several_hosts() && !scope_.fused && !scope_.on_host;
    }
    [[nodiscard]] runtime::ReducedParts await_parts(int bucket);
    [[nodiscard]] std::vector<float> agree_on_usage(int bucket);
    [[nodiscard]] std::span<float> begin_collect(int bucket);
    void post_collected(int bucket);
    void complete(int bucket);
    [[nodiscard]] std::vector<float> take_whole(int bucket);

    // The usage flags of a bucket on a device. `sums` is empty before the first exchange.
    struct Usage {
        std::vector<float> mine;         // this rank's flags in this generation
        std::vector<float> mine_before;  // this rank's flags at the ranks' first exchange
        std::vector<float> sums;         // sums of flags over all ranks, at the last exchange
    };
    // The data of one bucket.
    struct BucketSums {
        runtime::BucketId id;
        int buffer = -1;  // the gradient buffer that it shares with other buckets; -1 if none
        runtime::Generation generation = 0;
        runtime::ReducedParts parts = {};        // filled while the bucket is open
        std::vector<const float*> sources = {};  // the gradients of the host's ranks, if summed
                                                 // here
        std::vector<float> used = {};            // sums of flags over the micro steps that are kept
        Usage usage = {};
        std::vector<float> errors = {};  // rounding errors; empty unless they are kept
    };

    const ShardMap& map_;
    TensorDevice device_;
    runtime::Collectives& collectives_;
    GradientOptions options_;
    SumScope scope_;
    std::unique_ptr<GradientCollector> collector_;
    std::vector<BucketSums> sums_;       // by bucket
    std::vector<int> bucket_in_buffer_;  // one per buffer: its last bucket, -1 for none
    bool first_micro_step_ = true;
};

template <typename Use>
void GradientSums::for_each_in(int bucket, const Range& range, Use&& use) const {
    const BucketSums& held = sums_[bucket];
    if (scope_.fused) {
        std::vector<const float*> gradients;
        for (const float* source : held.sources) gradients.push_back(source + range.begin);
        use(range, std::span<const float* const>(gradients), mean());
    } else if (sums_in_place()) {
        const float* const sum = own(bucket).data() + range.begin;
        use(range, std::span<const float* const>(&sum, 1), 1.0F);
    } else {
        held.parts.for_each_in(range, [&](const Range& part, std::span<const float> values) {
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
