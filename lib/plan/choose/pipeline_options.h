// Every schedule for a model side by side: stages chosen, orders made, the step simulated. Data
// path: costs of segments -> [here] -> pipeline_text. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/choose/stage_choice.h"
#include "plan/pipeline/timed_schedule.h"

namespace dslaunch::plan {

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

// COSTS' schedule and shape are ignored. An option that the model or the limit of memory forbids
// has a reason; if WISH names one schedule, the reason is thrown as Error{kConfig} instead.
[[nodiscard]] std::vector<PipelineOption> pipeline_options(const StageRequest& costs,
                                                           const PipelineWish& wish);

// The number of chunks of a stage with KIND.
[[nodiscard]] int chunks_of(ScheduleKind kind, const PipelineWish& wish);

// The index of the option whose step takes least time; -1: none is possible.
[[nodiscard]] int fastest_of(const std::vector<PipelineOption>& options);

}  // namespace dslaunch::plan
