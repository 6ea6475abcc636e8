// The schedule of a pipeline whose parts' costs are known. Data path: costs of parts -> [here] ->
// step plans, mesh costs. Pure; every rank computes the same.
#pragma once

#include <vector>

#include "plan/pipeline/timed_schedule.h"

namespace dslaunch::plan {

// The order of KIND: the best found for COSTS where it goes by them, else make_schedule's.
[[nodiscard]] PipelineSchedule schedule_for(ScheduleKind kind, const PipelineShape& shape,
                                            const std::vector<PartCost>& costs);

}  // namespace dslaunch::plan
