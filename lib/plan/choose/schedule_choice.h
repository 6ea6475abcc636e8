// The schedule of a pipeline whose parts' costs are known. With zb-v it is the best order found for
// the costs: the regular order of make_schedule leaves gaps where forwards and backwards differ in
// length or micro batches are few. And all schedules for a model side by side: stages chosen,
// orders made, the step simulated. Data path: costs of parts -> [here] -> simulator, step plans,
// pipeline_text. Pure; every rank computes the same.
//
// A few heuristic rules are tried, each by running through the step: a free stage takes the work
// for which others wait, and fills the time until then with backward_weights. Like the heuristic of
// arXiv 2401.10241, section 6, no rule promises the best possible order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/choose/stage_choice.h"
#include "plan/pipeline/timed_schedule.h"

namespace dslaunch::plan {

// Returns the fastest order of those tried, which include the regular one; it keeps to live_bound.
// SHAPE is one of kZeroBubbleV. COSTS are by part of the model.
[[nodiscard]] PipelineSchedule best_zero_bubble_v(const PipelineShape& shape,
                                                  const std::vector<PartCost>& costs);

// Returns the order of KIND: the best found for COSTS where it uses them, else make_schedule's.
[[nodiscard]] PipelineSchedule schedule_for(ScheduleKind kind, const PipelineShape& shape,
                                            const std::vector<PartCost>& costs);

// A schedule for a model with its costs, or the reason why it is not possible.
struct PipelineOption {
    ScheduleKind kind = ScheduleKind::k1F1B;
    PipelineShape shape;
    std::string why_not;  // empty: the fields below are set
    PipelineSchedule schedule;
    StageChoice choice;
    TimedRun run;
};

struct PipelineWish {
    int stages = 1;
    int chunks = 2;  // chunks of an interleaved schedule
    int micro_batches = 1;
    std::optional<ScheduleKind> schedule = {};  // only this one; nullopt: each there is
    std::vector<int> first_segments = {};       // first segments of parts; empty: chosen by cost
};

// Returns the options. Ignores COSTS' schedule and shape. An option that the model or the limit of
// memory forbids has a reason; if WISH names one schedule, that reason is thrown as Error{kConfig}.
[[nodiscard]] std::vector<PipelineOption> pipeline_options(const StageRequest& costs,
                                                           const PipelineWish& wish);

// Returns the number of chunks of a stage with KIND.
[[nodiscard]] int chunks_of(ScheduleKind kind, const PipelineWish& wish);

// Returns the index of the option with the fastest step; -1: no option is possible.
[[nodiscard]] int fastest_of(const std::vector<PipelineOption>& options);

}  // namespace dslaunch::plan
