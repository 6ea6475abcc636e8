// A pipeline's schedule as a timed plan: when each work begins and ends, how long stages stand
// still, what activations they hold. Data path: schedule and costs of parts -> [here] ->
// time/timed_plan.h -> searches, plan's tables and pictures. Pure.
//
// Model: stages are lanes of works. What goes to another stage leaves when the work that makes it
// ends; what leaves a stage for the same neighbour goes one after the other. The step ends with the
// last work: the optimizer is not in it.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "plan/pipeline/pipeline_schedule.h"
#include "plan/time/timed_plan.h"

namespace dslaunch::plan {

// The cost of one part of the model and one micro batch. UNITS: seconds.
struct PartCost {
    double forward_s = 0;
    double backward_input_s = 0;   // with what is recomputed for it
    double backward_weight_s = 0;  // a whole backward takes both
    double send_s = 0;             // its outputs to the next part, and their gradients back
    Bytes activations = {};        // from the begin of forward to the end of (whole) backward
    Bytes kept_for_weight = {};    // what is left of them, and made for it, from the end of
                                   // backward_input to the end of backward_weight
    Bytes backward_takes = {};     // besides, while a backward that is not of weights runs
};

// A work as a task without waits. Its stage holds a micro batch until the last work of it.
[[nodiscard]] TimedTask timed_work(WorkKind kind, const PartCost& cost);

// The first lanes are the stages, with their works as SCHEDULE has them; links are behind them.
// COSTS: by part of the model. REQUIRES: chunks and micro batches are in range.
[[nodiscard]] TimedPlan timed_schedule(const PipelineSchedule& schedule,
                                       const std::vector<PartCost>& costs);

// Its run, of the stages alone. REQUIRES: check_schedule finds nothing.
[[nodiscard]] TimedRun simulate_pipeline(const PipelineSchedule& schedule,
                                         const std::vector<PartCost>& costs);

}  // namespace dslaunch::plan
