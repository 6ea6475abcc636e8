// The pipelines with which schedules and the simulator are tested.
#pragma once

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

}  // namespace dslaunch
