// A pipeline's schedule as a timed plan, which gives the beginning and the end of each work, the
// idle time of the stages, and the activations that they hold. Data path: schedule and costs of
// parts -> [here] -> time/timed_plan.h -> searches, plan's tables and pictures. Pure.
//
// Model: each stage is a lane of works. A message to another stage is sent when the work that
// produces it ends; a stage sends messages to the same neighbour one after the other. The step ends
// with the last work; the optimizer is not included.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "plan/pipeline/pipeline_schedule.h"
#include "plan/time/timed_plan.h"

namespace dslaunch::plan {

// The cost of one part of the model for one micro batch. UNITS: seconds.
struct PartCost {
    double forward_s = 0;
    double backward_input_s = 0;   // includes recomputation
    double backward_weight_s = 0;  // a whole backward takes the sum of both times
    double send_s = 0;             // transfer of outputs to the next part, or of gradients back
    Bytes activations = {};        // held from the beginning of the forward to the end of the
                                   // backward or backward_input
    Bytes kept_for_weight = {};    // remaining activations and tensors for backward_weight: held
                                   // from the end of backward_input to the end of backward_weight
    Bytes backward_takes = {};     // further bytes, while a whole backward or backward_input runs
};

// Returns a work as a task without waits. The stage holds a micro batch's activations until the
// last work on that micro batch.
[[nodiscard]] TimedTask timed_work(WorkKind kind, const PartCost& cost);

// Returns a plan whose first lanes are the stages, with their works in the order of SCHEDULE; links
// are the lanes after them. COSTS are indexed by part of the model. REQUIRES: chunks and micro
// batches are in range.
[[nodiscard]] TimedPlan timed_schedule(const PipelineSchedule& schedule,
                                       const std::vector<PartCost>& costs);

// Runs the timed plan of SCHEDULE and returns the results of the stages, without the links.
// REQUIRES: SCHEDULE can be run, like each of make_schedule().
[[nodiscard]] TimedRun simulate_pipeline(const PipelineSchedule& schedule,
                                         const std::vector<PartCost>& costs);

}  // namespace dslaunch::plan
