// Pipelines as tables, JSON and pictures: `dslaunch plan --stages` prints the tables, --json the
// JSON, and --svg draws the pictures. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/text/json.h"
#include "plan/choose/schedule_choice.h"
#include "plan/model/model_info.h"
#include "plan/print/timeline_svg.h"

namespace dslaunch::plan {

// Returns a line per schedule: the time of a step, the bubble, and the largest activations and
// memory of a stage.
[[nodiscard]] std::string schedules_table(const std::vector<PipelineOption>& options);
// Returns a table with one line per part of the model, in the order of stages. A line has the
// part's segments, parameters, FLOPs and time; the first line of a stage also has the stage's
// states and activations. Sentences about parameters that several stages read follow the table.
[[nodiscard]] std::string stages_table(const PipelineOption& option, const ModelInfo& model);

// Writes the contents of the tables as JSON. UNITS: bytes, seconds; FLOPs of the forward of one
// micro batch.
void schedules_json(const std::vector<PipelineOption>& options, const ModelInfo& model,
                    JsonWriter& json);

// Returns the lanes of SCHEDULE's stages, with the times of RUN, the simulated run of SCHEDULE.
[[nodiscard]] Timeline pipeline_timeline(const PipelineSchedule& schedule, const TimedRun& run);

}  // namespace dslaunch::plan
