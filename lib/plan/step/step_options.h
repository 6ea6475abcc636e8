// The options of a step plan: the rank's place, the config's choices, and limits of the way between
// hosts. Value types.
#pragma once

#include <cstdint>
#include <vector>

#include "base/kinds/wire_packing.h"
#include "plan/exchange/exchange.h"
#include "plan/layout/flat_layout.h"
#include "plan/layout/partition.h"
#include "plan/layout/state_chunks.h"
#include "plan/pipeline/stage_work.h"
#include "plan/step/lagging.h"

namespace dslaunch::plan {

// The limits of stage 3's gathers, in elements, which gather_schedule.h keeps.
struct GatherLimits {
    int64_t live_numel_max = 1'000'000'000;   // elements gathered at once
    int64_t prefetch_numel_max = 50'000'000;  // elements gathered ahead of their use; 0: only when
                                              // needed
    int64_t reuse_distance_numel_max = 0;     // most elements of other parameters read in between
                                              // by a kept bucket
};

// The form in which values travel between hosts (ZeRO++, arXiv:2306.10209). It changes nothing on
// one host, and nothing that GPUs send.
struct HostWire {
    WirePacking parameters = WirePacking::kNone;  // trained ones, as they are gathered at stage 3
    WirePacking frozen = WirePacking::kNone;
    // In 16 bits at all stages, but for slices that say otherwise (FlatLayout). REQUIRES, in 8 and
    // 4 bits: stages 1 to 3, shards over hosts.
    WirePacking gradients = WirePacking::kNone;
    // Sums of a host are divided by it before they travel in 16 bits, and multiplied after.
    double predivide = 1;
    bool error_feedback = false;  // ranks keep the rounding errors of their gradients
    // Each host keeps what it has gathered until the step's last use: a second copy of the
    // parameters, which no later forward or backward gathers between hosts.
    bool host_copy = false;

    bool operator==(const HostWire&) const = default;
};

struct StepPlanOptions {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
    int local_world_size = 1;
    int64_t accumulation_steps = 1;
    int64_t recompute_groups = 0;         // 0: keep every activation
    bool clip = false;                    // kNorm must see every bucket before the first kUpdate
    bool reduce_each_micro_step = false;  // always true at stages 2 and 3
    bool fused_update = false;     // stage 0: kUpdate sums the local ranks' gradients itself: one
                                   // host, no clip, no kReduce
    int64_t optimizer_states = 2;  // fp32 values per parameter: Adam 2, SGD with momentum 1
    // The fp32 values of each of the model's parameters that are in no chunk: states of whole
    // tensors, in memory. Empty: there are no such values.
    std::vector<int64_t> tensor_states = {};
    int stage = 0;                         // ZeRO stage
    std::vector<int> node_sizes = {};      // ranks of each host; empty: all on one
    int64_t parameter_bytes = 4;           // bytes of an element as segments read it
    bool master = false;                   // true: 16-bit parameters have an fp32 copy
    bool check_overflow = false;           // kNorm as with clip, for the loss scale
    const Partition* partition = nullptr;  // owners of shards. REQUIRES: given from stage 1 on
    GatherLimits gather = {};
    OffloadPlan offload = {};
    HostWire wire = {};
    // The number of neighbouring ranks that shard one copy of the states, while other groups hold
    // other copies (MiCS, arXiv:2205.00119); 0: all ranks shard one. `partition` is over them.
    // REQUIRES: it divides world_size; a group is a whole host, or its ranks are on hosts of one
    // rank each.
    int shard_group = 0;
    // True if updates take whole tensors, so that at stage 0 the local ranks share the writing
    // tensor by tensor. REQUIRES, from stage 1 on: the partition cuts no tensor.
    bool whole_tensors = false;
    // True if everything that is not on disk is in the memory of a GPU that the rank has alone.
    // REQUIRES: hosts of one rank each.
    bool on_device = false;
    Exchange exchange = Exchange::kExact;  // between hosts in this step
    // REQUIRES, if it is on: `exchange` is kExact, parameters are not offloaded, nothing is packed.
    LagPlan lag = {};
    // Kept by every plan of a job that compresses. REQUIRES then: each host holds a copy.
    CompressionRoom compression = {};
    StageWork stage_work = {};  // REQUIRES: `order` has each part and micro step once forward and
                                // once backward, whole or in both halves

    [[nodiscard]] int64_t tensor_states_of(int parameter) const {
        return tensor_states.empty() ? 0 : tensor_states[static_cast<size_t>(parameter)];
    }
    [[nodiscard]] int node_count() const {
        return node_sizes.empty() ? 1 : static_cast<int>(node_sizes.size());
    }
    // Return the number of ranks that shard one copy, with this rank, and the number of copies.
    [[nodiscard]] int shard_ranks() const { return shard_group > 0 ? shard_group : world_size; }
    [[nodiscard]] int shard_rank() const { return rank % shard_ranks(); }
    [[nodiscard]] int copies() const { return world_size / shard_ranks(); }
    // Returns true if the ranks that shard one copy are on several hosts.
    [[nodiscard]] bool shards_over_hosts() const {
        return node_count() > 1 && shard_ranks() > local_world_size;
    }
    // Returns true if gradients are summed in full over the ranks of a host alone.
    [[nodiscard]] bool sums_on_host() const;
    // Return this rank's host, and the bridges of a host (Topology::bridge_count).
    [[nodiscard]] int node_rank() const;
    [[nodiscard]] int bridge_count() const;
    // Returns true if no update may begin before every gradient of the step has been seen. Where
    // updates lag, important units are chosen by all of them.
    [[nodiscard]] bool norm_first() const { return clip || check_overflow || lag.on; }
    // Returns true if the reduced gradients of a step are added up, or kept, beside the buckets.
    // Their sums are in the place of the states, in memory or on disk.
    [[nodiscard]] bool keeps_reduced() const {
        return (reduces_each() && accumulation_steps > 1) || (stage >= 2 && norm_first());
    }
    [[nodiscard]] ChunkFormat chunk_format() const {
        return {parameter_bytes,  master,          optimizer_states,        offload.packings,
                offload.lossless, keeps_reduced(), offload.packed_in_memory};
    }
    // Returns true if parameters, or a bucket's parameters, are whole only while they are gathered.
    [[nodiscard]] bool gathers() const {
        return stage == 3 && (shards_over_hosts() || offload.parameters);
    }
    [[nodiscard]] bool is_gathered(const Bucket& bucket) const {
        return gathers() && bucket.kind != BucketKind::kPersistent;
    }
    // Returns how the parameters of a gathered bucket travel in a step.
    [[nodiscard]] WirePacking gather_packing(const Bucket& bucket) const {
        if (!shards_over_hosts() || !is_gathered(bucket)) return WirePacking::kNone;
        return bucket.kind == BucketKind::kFrozen ? wire.frozen : wire.parameters;
    }
    [[nodiscard]] WirePacking reduce_packing() const {
        const bool travel = is_half(wire.gradients) ? node_count() > 1 && !sums_on_host()
                                                    : stage > 0 && shards_over_hosts();
        return travel ? wire.gradients : WirePacking::kNone;
    }
    [[nodiscard]] bool keeps_errors() const {
        return wire.error_feedback && reduce_packing() != WirePacking::kNone;
    }
    // Returns true if each host keeps what it has gathered until the step's last use.
    [[nodiscard]] bool keeps_gathered() const { return wire.host_copy && gathers(); }
    [[nodiscard]] bool reduces_each() const { return reduce_each_micro_step || stage >= 2; }
    // Returns true if each micro step reduces; tied buckets add up until their stages add up.
    [[nodiscard]] bool reduces_each(const Bucket& bucket) const {
        return reduces_each() && bucket.kind != BucketKind::kTied;
    }
};

}  // namespace dslaunch::plan
