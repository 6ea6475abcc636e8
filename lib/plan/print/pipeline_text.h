// Pipelines in words and as a picture: `dslaunch plan --stages` prints them, --json for machines,
// --svg draws them. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/text/json.h"
#include "plan/choose/schedule_choice.h"
#include "plan/model/model_info.h"
#include "plan/print/timeline_svg.h"

namespace dslaunch::plan {

// Returns a line per schedule: a step's time, bubble, its stages' most activations and memory.
[[nodiscard]] std::string schedules_table(const std::vector<PipelineOption>& options);
// Returns one line per part of the model, in the order of stages: its segments, parameters, FLOPs,
// time; for each stage states and activations; then parameters that several stages read.
[[nodiscard]] std::string stages_table(const PipelineOption& option, const ModelInfo& model);

// Writes the contents of the tables as JSON. UNITS: bytes, seconds, FLOPs of a micro batch's
// forward.
void schedules_json(const std::vector<PipelineOption>& options, const ModelInfo& model,
                    JsonWriter& json);

// Returns the lanes of SCHEDULE's stages with the times of RUN, which is its run.
[[nodiscard]] Timeline pipeline_timeline(const PipelineSchedule& schedule, const TimedRun& run);

}  // namespace dslaunch::plan
