// A pipeline's schedule as a timed plan: the begin and the end of each work, the idle time of
// stages, the activations that they hold. Data path: schedule and costs of parts -> [here] ->
// time/timed_plan.h -> searches, plan's tables and pictures. Pure.
//
// Model: stages are lanes of works. A message to another stage leaves when the work that makes it
// ends; messages from a stage to one neighbour go one after the other. The step ends with the last
// work; the optimizer is not included.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "plan/pipeline/pipeline_schedule.h"
#include "plan/time/timed_plan.h"

namespace dslaunch::plan {

// The cost of one part of the model and one micro batch. UNITS: seconds.
struct PartCost {
    double forward_s = 0;
    double backward_input_s = 0;   // with recomputation
    double backward_weight_s = 0;  // a whole backward takes both times
    double send_s = 0;             // outputs to the next part, or their gradients back
    Bytes activations = {};        // from the begin of forward to the end of a (whole) backward
    Bytes kept_for_weight = {};    // activations that are left, and tensors made for
                                   // backward_weight, from the end of backward_input to its end
    Bytes backward_takes = {};     // more bytes, while a backward other than backward_weight runs
};

// Returns a work as a task without waits. Its stage holds a micro batch until that one's last work.
[[nodiscard]] TimedTask timed_work(WorkKind kind, const PartCost& cost);

// Returns a plan whose first lanes are the stages, with their works in SCHEDULE's order, then
// links. COSTS are by part of the model. REQUIRES: chunks and micro batches are in range.
[[nodiscard]] TimedPlan timed_schedule(const PipelineSchedule& schedule,
                                       const std::vector<PartCost>& costs);

// Returns that timed plan's run, for the stages alone. REQUIRES: check_schedule finds nothing.
[[nodiscard]] TimedRun simulate_pipeline(const PipelineSchedule& schedule,
                                         const std::vector<PartCost>& costs);

}  // namespace dslaunch::plan
