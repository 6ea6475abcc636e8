// The pipelines with which schedules and the simulator are tested.
#pragma once

#include <algorithm>

#include "plan/pipeline/pipeline_schedule.h"

namespace dslaunch {

using namespace plan;

// Calls VISIT(kind, shape) for stages 1 to 8, chunks 1 to 4 and micro batches 1 to 17. Shapes for
// which there is no schedule are left out.
template <typename Visit>
void for_each_pipeline(Visit&& visit) {
    for (const ScheduleKind kind : kScheduleKinds)
        for (int stages = 1; stages <= 8; ++stages)
            for (int chunks = 1; chunks <= 4; ++chunks)
                for (int micro_batches = 1; micro_batches <= 17; ++micro_batches) {
                    const PipelineShape shape{stages, chunks, micro_batches};
                    if (why_no_schedule(kind, shape).empty()) visit(kind, shape);
                }
}

// Returns the largest number of forwards whose activations STAGE may hold at once, by the papers.
// The forwards of all its chunks count, and each counts until its backward_weight has run. For
// 1F1B, they are the micro batches under way after the stage; split schedules have equally many on
// every stage; gpipe has all.
inline int live_bound(ScheduleKind kind, const PipelineShape& shape, int stage) {
    const int all = shape.micro_batches * shape.chunks, later = shape.stages - 1 - stage;
    if (kind == ScheduleKind::kGPipe) return all;
    if (kind == ScheduleKind::kZeroBubbleH1) return std::min(all, shape.stages);
    if (kind == ScheduleKind::kZeroBubbleV) return std::min(all, 2 * shape.stages);
    if (shape.chunks == 1) return std::min(all, later + 1);
    // Micro batches pass through the chunks in groups of as many as there are stages, or more.
    const int groups = std::max(1, shape.micro_batches / shape.stages);
    const int first_group = (shape.micro_batches + groups - 1) / groups;
    return std::min(all, 2 * later + (shape.chunks - 1) * first_group + 1);
}

}  // namespace dslaunch
