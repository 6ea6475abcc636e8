// Every schedule for a model side by side: stages chosen, orders made, the step simulated. Where it
// stands: costs of segments -> [here] -> pipeline_text. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/pipeline/stage_choice.h"
#include "plan/pipeline/timed_schedule.h"

namespace dslaunch::plan {

// A schedule for a model: what it comes to, or why it cannot be had.
struct PipelineOption {
    ScheduleKind kind = ScheduleKind::k1F1B;
    PipelineShape shape;
    std::string why_not;  // empty: the rest is there
    PipelineSchedule schedule;
    StageChoice choice;
    TimedRun run;
};

struct PipelineWish {
    int stages = 1;
    int chunks = 2;  // of interleaved
    int micro_batches = 1;
    std::optional<ScheduleKind> schedule = {};  // this one alone; else each there is
    std::vector<int> first_segments = {};       // where parts begin; empty: chosen by cost
};

// COSTS: schedule and shape in it do not matter. An option that the model or the limit of memory
// forbids says why; with one schedule asked for that is thrown instead, as Error{kConfig}.
[[nodiscard]] std::vector<PipelineOption> pipeline_options(const StageRequest& costs,
                                                           const PipelineWish& wish);

// Chunks of a stage with KIND.
[[nodiscard]] int chunks_of(ScheduleKind kind, const PipelineWish& wish);

// The option whose step takes least time, -1: none is possible.
[[nodiscard]] int fastest_of(const std::vector<PipelineOption>& options);

}  // namespace dslaunch::plan
