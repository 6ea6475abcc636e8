// The times at which the parameters of each bucket are gathered and released within a micro step,
// at stage 3 over several hosts. Data path: model, flat layout -> gather schedule ->
// step plan. Pure. The limits have the meaning of DeepSpeed's stage3_max_live_parameters,
// stage3_prefetch_bucket_size and stage3_max_reuse_distance
// (deepspeed/runtime/zero/partitioned_param_coordinator.py).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/layout/reused_buffers.h"
#include "plan/step/recompute_groups.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Returns the work of the compute lane on RANGE in a micro step, in order: the segment of each
// position, for forward, recompute and backward.
[[nodiscard]] std::vector<int> compute_positions(const ModelInfo& model,
                                                 std::span<const RecomputeGroup> groups,
                                                 const SegmentRange& range);

// Returns the buckets that hold each segment's parameters, each bucket once, in order.
[[nodiscard]] std::vector<std::vector<int>> buckets_of_segments(const ModelInfo& model,
                                                                const FlatLayout& layout);

struct GatherUse {
    int bucket = 0;
    int issue = 0;  // issued on the communication lane before this position
    int begin = 0;  // first and last position that reads it
    int end = 0;
    int buffer = 0;
};

struct GatherSchedule {
    std::vector<GatherUse> uses;  // by issue
    std::vector<int64_t> buffer_numel;
    int64_t live_numel_max = 0;  // most elements that are gathered or on their way at once
};

// Returns the schedule. BUCKETS_OF[s] are the gathered buckets that segment s reads; POSITIONS come
// from compute_positions. A bucket is kept between two readings if they are no farther apart than
// the reuse distance and the limit of live elements holds. Only two neighbouring segments that need
// more than that limit exceed it.
[[nodiscard]] GatherSchedule make_gather_schedule(const FlatLayout& layout,
                                                  std::span<const std::vector<int>> buckets_of,
                                                  std::span<const int> positions,
                                                  const GatherLimits& limits);

// The gathers of a step. Without a pipeline a micro step is one schedule, `forward`. In a pipeline
// each work of a part has its own schedule: nothing is kept until the next work, which may be of
// another micro step.
struct PartGathers {
    GatherSchedule forward;
    GatherSchedule backward;
    GatherSchedule weight;  // for second halves of backwards
};
// If hosts keep what they gather (StepPlanOptions::keeps_gathered), each bucket has a buffer of its
// own, and only its first gather of a step is done.
struct StepGathers {
    std::vector<PartGathers> parts;
    std::vector<int64_t> buffer_numel;
};
[[nodiscard]] StepGathers make_step_gathers(const ModelInfo& model, const FlatLayout& layout,
                                            std::span<const std::vector<int>> buckets_of,
                                            std::span<const RecomputeGroup> groups,
                                            const StepPlanOptions& options);

}  // namespace dslaunch::plan
