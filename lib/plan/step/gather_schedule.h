// The times within a micro step at which the parameters of each bucket are gathered and released,
// at stage 3 over several hosts. Data path: model, flat layout -> gather schedule -> step plan.
// Pure. The limits have the meaning of DeepSpeed's stage3_max_live_parameters,
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

// Returns the segments that the compute lane runs in one micro step, in order: the forwards,
// recomputations and backwards of RANGE. A position is an index into this result.
[[nodiscard]] std::vector<int> compute_positions(const ModelInfo& model,
                                                 std::span<const RecomputeGroup> groups,
                                                 const SegmentRange& range);

// Returns, for each segment, the buckets that contain its parameters, each bucket once, in order.
[[nodiscard]] std::vector<std::vector<int>> buckets_of_segments(const ModelInfo& model,
                                                                const FlatLayout& layout);

// One gather of a bucket, and the positions at which it is used.
struct GatherUse {
    int bucket = 0;
    int issue = 0;  // the gather begins before this position
    int begin = 0;  // first position that reads the bucket; `end` is the last
    int end = 0;
    int buffer = 0;
};

// The gathers of one work, or of a micro step without a pipeline.
struct GatherSchedule {
    std::vector<GatherUse> uses;  // sorted by issue
    std::vector<int64_t> buffer_numel;
    int64_t live_numel_max = 0;  // most elements that are gathered, or being gathered, at once
};

// Returns the schedule. BUCKETS_OF[s] lists the gathered buckets that segment s reads; POSITIONS
// come from compute_positions. LIMITS bound the reuse distance and the number of elements that are
// gathered at once: only within these limits is a bucket kept until its next use. More elements are
// gathered at once only if two neighbouring segments need them.
[[nodiscard]] GatherSchedule make_gather_schedule(const FlatLayout& layout,
                                                  std::span<const std::vector<int>> buckets_of,
                                                  std::span<const int> positions,
                                                  const GatherLimits& limits);

// The gathers of a step. Without a pipeline, a micro step has a single schedule, `forward`. In a
// pipeline, each work of a part has a separate schedule. No bucket is kept from one work to the
// next, because the next work may belong to another micro step.
struct PartGathers {
    GatherSchedule forward;
    GatherSchedule backward;
    GatherSchedule weight;  // for second halves of backwards
};
// The gathers and buffers of all parts. If each host keeps the parameters that it has gathered
// (StepPlanOptions::keeps_gathered), each bucket has a separate buffer and is gathered only once in
// a step.
struct StepGathers {
    std::vector<PartGathers> parts;
    std::vector<int64_t> buffer_numel;
};
// Returns the gathers of a step. BUCKETS_OF[s] lists the gathered buckets that segment s reads.
[[nodiscard]] StepGathers make_step_gathers(const ModelInfo& model, const FlatLayout& layout,
                                            std::span<const std::vector<int>> buckets_of,
                                            std::span<const RecomputeGroup> groups,
                                            const StepPlanOptions& options);

}  // namespace dslaunch::plan
