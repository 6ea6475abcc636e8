// The options of a step plan: the rank's place, the choices of the config, and the limits of
// transfers between hosts. Value types.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/kinds/wire_packing.h"
#include "plan/exchange/exchange.h"
#include "plan/layout/chunk_layout.h"
#include "plan/layout/flat_layout.h"
#include "plan/layout/partition.h"
#include "plan/pipeline/stage_work.h"
#include "plan/step/lagging.h"

namespace dslaunch::plan {

// The limits of the gathers at stage 3, in elements. gather_schedule.h applies them.
struct GatherLimits {
    int64_t live_numel_max = 1'000'000'000;   // elements gathered at once
    int64_t prefetch_numel_max = 50'000'000;  // elements gathered ahead of their use; 0: none
    int64_t reuse_distance_numel_max = 0;     // elements of other parameters that may be read while
                                              // a bucket is kept
};

// The form in which values are sent between hosts (ZeRO++, arXiv:2306.10209). It has no effect on a
// single host or on values that GPUs send.
struct HostWire {
    WirePacking parameters = WirePacking::kNone;  // form of gathered trained parameters, stage 3
    WirePacking frozen = WirePacking::kNone;
    // The form of gradients. 16 bits are allowed at all stages, and slices with exact gradients
    // (FlatLayout) are not packed. REQUIRES, for 8 and 4 bits: stages 1 to 3, and shards over
    // several hosts.
    WirePacking gradients = WirePacking::kNone;
    // The divisor for the sums of a host: sums are divided by it before they are sent in 16 bits,
    // and multiplied by it afterwards.
    double predivide = 1;
    bool error_feedback = false;  // true: ranks keep the rounding errors of gradients
    // True if each host keeps a copy of gathered parameters until their last use in the step. Later
    // forwards and backwards then need not gather these parameters from other hosts again.
    bool host_copy = false;

    bool operator==(const HostWire&) const = default;
};

// The choices from which make_step_plan() makes the plan of one rank.
struct StepPlanOptions {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
    int local_world_size = 1;
    int64_t accumulation_steps = 1;
    int64_t recompute_groups = 0;         // 0: keep every activation
    bool clip = false;                    // kNorm must see every bucket before the first kUpdate
    bool reduce_each_micro_step = false;  // always true at stages 2 and 3
    bool fused_update = false;     // stage 0: kUpdate itself sums the local ranks' gradients; only
                                   // with one host and no clip
    int64_t optimizer_states = 2;  // fp32 values per parameter: Adam 2, SGD with momentum 1
    // The number of fp32 values that belong to each parameter as a whole tensor. These states are
    // in no chunk and stay in memory. Empty if all states are in chunks.
    std::vector<int64_t> tensor_states = {};
    int stage = 0;                         // ZeRO stage
    std::vector<int> node_sizes = {};      // ranks of each host; empty: all on one
    int64_t parameter_bytes = 4;           // bytes of an element in the form that segments read
    bool master = false;                   // true: 16-bit parameters have an fp32 copy
    bool check_overflow = false;           // true: needs kNorm as `clip` does, for the loss scale
    const Partition* partition = nullptr;  // owners of shards. REQUIRES: given from stage 1 on
    GatherLimits gather = {};
    OffloadPlan offload = {};
    HostWire wire = {};
    // The number of neighbouring ranks that together hold one copy of the states, if there are
    // several copies (MiCS, arXiv:2205.00119); 0: all ranks hold a single copy together.
    // `partition` divides the states among the ranks of a group. REQUIRES: shard_group divides
    // world_size; a group consists of all ranks of one host, or each host has only one rank.
    int shard_group = 0;
    // True if updates need whole tensors. At stage 0, each local rank then writes whole parameters.
    // REQUIRES, from stage 1 on: the partition cuts no tensor.
    bool whole_tensors = false;
    // True if the rank has a GPU of its own. Everything that is not on disk is then in this GPU's
    // memory. REQUIRES: each host has only one rank.
    bool on_device = false;
    Exchange exchange = Exchange::kExact;  // between hosts in this step
    // REQUIRES, if lag.on: `exchange` is kExact, parameters are not offloaded, nothing is packed.
    LagPlan lag = {};
    // The buffers that every plan of a job with compression keeps. REQUIRES, if there are any: each
    // host holds a copy of the states.
    CompressionRoom compression = {};
    StageWork stage_work = {};  // REQUIRES: `order` has one forward and one backward (whole, or
                                // both halves) of each part and micro step

    // Returns the entry of tensor_states for PARAMETER.
    [[nodiscard]] int64_t tensor_states_of(int parameter) const {
        return tensor_states.empty() ? 0 : tensor_states[static_cast<size_t>(parameter)];
    }
    // Returns the number of hosts.
    [[nodiscard]] int node_count() const {
        return node_sizes.empty() ? 1 : static_cast<int>(node_sizes.size());
    }
    // Return the number of ranks that shard this rank's copy of the states (this rank included),
    // this rank's index among them, and the number of copies.
    [[nodiscard]] int shard_ranks() const { return shard_group > 0 ? shard_group : world_size; }
    [[nodiscard]] int shard_rank() const { return rank % shard_ranks(); }
    [[nodiscard]] int copies() const { return world_size / shard_ranks(); }
    // Returns true if the ranks that shard one copy of the states are on several hosts.
    [[nodiscard]] bool shards_over_hosts() const {
        return node_count() > 1 && shard_ranks() > local_world_size;
    }
    // Returns true if gradients are summed only over the ranks of a host: there is only one host,
    // or `exchange` replaces the sums over hosts.
    [[nodiscard]] bool sums_on_host() const {
        return node_count() == 1 || exchange != Exchange::kExact;
    }
    // Return the index of this rank's host, and the number of bridges of a host
    // (Topology::bridge_count).
    [[nodiscard]] int node_rank() const {
        int node = 0;
        for (int begin = 0; node + 1 < node_count() && begin + node_sizes[node] <= rank; ++node)
            begin += node_sizes[node];
        return node;
    }
    [[nodiscard]] int bridge_count() const {
        return node_sizes.empty() ? 1 : *std::ranges::min_element(node_sizes);
    }
    // Returns true if no update may begin before all gradients of the step are known. If updates
    // lag, the important units are chosen from all gradients.
    [[nodiscard]] bool norm_first() const { return clip || check_overflow || lag.on; }
    // Returns true if the step's reduced gradients are kept, and added up if necessary, in separate
    // buffers outside the buckets. These buffers are in memory or on disk, like the states.
    [[nodiscard]] bool keeps_reduced() const {
        return (reduces_each() && accumulation_steps > 1) || (stage >= 2 && norm_first());
    }
    // Returns the form of all chunks of the rank.
    [[nodiscard]] ChunkFormat chunk_format() const {
        return {parameter_bytes,  master,          optimizer_states,        offload.packings,
                offload.lossless, keeps_reduced(), offload.packed_in_memory};
    }
    // Returns true if a rank must gather some parameters, because it does not hold them whole.
    // is_gathered returns true if BUCKET contains such parameters.
    [[nodiscard]] bool gathers() const {
        return stage == 3 && (shards_over_hosts() || offload.parameters);
    }
    [[nodiscard]] bool is_gathered(const Bucket& bucket) const {
        return gathers() && bucket.kind != BucketKind::kPersistent;
    }
    // Returns the form in which the parameters of BUCKET are sent between hosts in a gather.
    [[nodiscard]] WirePacking gather_packing(const Bucket& bucket) const {
        if (!shards_over_hosts() || !is_gathered(bucket)) return WirePacking::kNone;
        return bucket.kind == BucketKind::kFrozen ? wire.frozen : wire.parameters;
    }
    // Returns the form in which gradients are sent between hosts in a Reduce; kNone if they are not
    // packed.
    [[nodiscard]] WirePacking reduce_packing() const {
        const bool travel = is_half(wire.gradients) ? node_count() > 1 && !sums_on_host()
                                                    : stage > 0 && shards_over_hosts();
        return travel ? wire.gradients : WirePacking::kNone;
    }
    // Returns true if this rank keeps the rounding errors of packed gradients.
    [[nodiscard]] bool keeps_errors() const {
        return wire.error_feedback && reduce_packing() != WirePacking::kNone;
    }
    // Returns true if each host keeps gathered parameters until their last use in the step.
    [[nodiscard]] bool keeps_gathered() const { return wire.host_copy && gathers(); }
    // Returns true if every micro step reduces its gradients, not only the last one.
    [[nodiscard]] bool reduces_each() const { return reduce_each_micro_step || stage >= 2; }
    // Returns true if BUCKET is reduced in each micro step. A tied bucket is not: its gradients are
    // added up locally until its stages sum them.
    [[nodiscard]] bool reduces_each(const Bucket& bucket) const {
        return reduces_each() && bucket.kind != BucketKind::kTied;
    }
};

}  // namespace dslaunch::plan
