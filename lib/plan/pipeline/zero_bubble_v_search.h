// An order for a V-shaped zero-bubble pipeline whose forwards and backwards are not of equal
// length: the regular order of make_schedule leaves gaps then. Data path: costs of parts ->
// [here] -> simulator, step plans. Pure; every rank computes the same.
//
// A few heuristic rules are tried, each by running through the step: a free stage takes the work
// that others wait for, and fills the time until then with backward_weights. Like the heuristic of
// arXiv 2401.10241, section 6, none of them promises the best order there is.
#pragma once

#include <vector>

#include "plan/pipeline/timed_schedule.h"

namespace dslaunch::plan {

// The order that takes least time of those tried, which include the regular one; it keeps to
// live_bound. SHAPE is one of kZeroBubbleV. COSTS are by part of the model.
[[nodiscard]] PipelineSchedule best_zero_bubble_v(const PipelineShape& shape,
                                                  const std::vector<PartCost>& costs);

}  // namespace dslaunch::plan
