#include "plan/pipeline/schedule_choice.h"

#include "plan/pipeline/zero_bubble_v_search.h"

namespace dslaunch::plan {

PipelineSchedule schedule_for(ScheduleKind kind, const PipelineShape& shape,
                              const std::vector<PartCost>& costs) {
    return kind == ScheduleKind::kZeroBubbleV ? best_zero_bubble_v(shape, costs)
                                              : make_schedule(kind, shape);
}

}  // namespace dslaunch::plan
