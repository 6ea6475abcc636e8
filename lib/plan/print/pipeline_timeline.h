// A simulated step of a pipeline as a timeline: one lane per stage, micro batches numbered in their
// boxes, chunks in shades. Data path: simulator -> [here] -> timeline_svg. Pure.
#pragma once

#include "plan/pipeline/timed_schedule.h"
#include "plan/print/timeline_svg.h"

namespace dslaunch::plan {

// RUN is the run of SCHEDULE.
[[nodiscard]] Timeline pipeline_timeline(const PipelineSchedule& schedule, const TimedRun& run);

}  // namespace dslaunch::plan
