// Chooses the schedule of a pipeline from the known costs of its parts. For zb-v, it searches for
// the best order for these costs, because the regular order of make_schedule leaves gaps if
// forwards and backwards differ in length or micro batches are few. Also compares all schedules for
// a model: for each schedule, it chooses the stages, makes the orders and simulates the step. Data
// path: costs of parts -> [here] -> simulator, step plans, pipeline_text. Pure; every rank computes
// the same.
//
// For zb-v, a few heuristic rules are tried; each simulates a step. A free stage first runs the
// work for which other stages wait. It runs backward_weights until such work can begin. Like the
// heuristic of arXiv 2401.10241, section 6, no rule promises the best possible order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/choose/stage_choice.h"
#include "plan/pipeline/timed_schedule.h"

namespace dslaunch::plan {

// Returns the fastest of the orders that were tried; the regular order is one of them. No stage
// holds the activations of more than 2 * SHAPE.stages forwards at once. SHAPE must be a valid shape
// for kZeroBubbleV. COSTS are indexed by part of the model.
[[nodiscard]] PipelineSchedule best_zero_bubble_v(const PipelineShape& shape,
                                                  const std::vector<PartCost>& costs);

// Returns the schedule of KIND: for kZeroBubbleV the best order that is found for COSTS, for other
// kinds the order of make_schedule.
[[nodiscard]] PipelineSchedule schedule_for(ScheduleKind kind, const PipelineShape& shape,
                                            const std::vector<PartCost>& costs);

// A schedule for a model with its costs, or the reason why it is not possible.
struct PipelineOption {
    ScheduleKind kind = ScheduleKind::k1F1B;
    PipelineShape shape;
    std::string why_not;  // empty if the schedule is possible: then the fields below are set
    PipelineSchedule schedule;
    StageChoice choice;
    TimedRun run;
};

// The pipeline that a user asks for.
struct PipelineWish {
    int stages = 1;
    int chunks = 2;  // chunks of each stage in an interleaved schedule
    int micro_batches = 1;
    std::optional<ScheduleKind> schedule = {};  // the only schedule to try; nullopt: all schedules
    std::vector<int> first_segments = {};       // first segments of parts; empty: chosen by cost
};

// Returns the options. Ignores the schedule and shape in COSTS. If the model or the memory limit
// forbids an option, the option states the reason. If WISH names a single schedule, throws
// Error{kConfig} with the reason instead.
[[nodiscard]] std::vector<PipelineOption> pipeline_options(const StageRequest& costs,
                                                           const PipelineWish& wish);

// Returns how many chunks each stage has with KIND.
[[nodiscard]] int chunks_of(ScheduleKind kind, const PipelineWish& wish);

// Returns the index of the option with the fastest step; -1 if no option is possible.
[[nodiscard]] int fastest_of(const std::vector<PipelineOption>& options);

}  // namespace dslaunch::plan
