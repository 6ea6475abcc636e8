// The schedule of a pipeline whose parts' costs are known: with zb-v the best order found for them,
// since the regular order of make_schedule leaves gaps where forwards and backwards are not of
// equal length or micro batches are few. Data path: costs of parts -> [here] -> simulator, step
// plans. Pure; every rank computes the same.
//
// A few heuristic rules are tried, each by running through the step: a free stage takes the work
// that others wait for, and fills the time until then with backward_weights. Like the heuristic of
// arXiv 2401.10241, section 6, no rule promises the best order there is.
#pragma once

#include <vector>

#include "plan/pipeline/timed_schedule.h"

namespace dslaunch::plan {

// The order that takes least time of those tried, which include the regular one; it keeps to
// live_bound. SHAPE is one of kZeroBubbleV. COSTS are by part of the model.
[[nodiscard]] PipelineSchedule best_zero_bubble_v(const PipelineShape& shape,
                                                  const std::vector<PartCost>& costs);

// The order of KIND: the best found for COSTS where it goes by them, else make_schedule's.
[[nodiscard]] PipelineSchedule schedule_for(ScheduleKind kind, const PipelineShape& shape,
                                            const std::vector<PartCost>& costs);

}  // namespace dslaunch::plan
