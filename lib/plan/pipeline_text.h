// Pipelines in words: `dslaunch plan --stages` prints them, --json for machines. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "plan/model_info.h"
#include "plan/pipeline_scale.h"
#include "plan/pipeline_simulator.h"
#include "plan/stage_choice.h"

namespace dslaunch {

// A schedule for a model: what it comes to, or why it cannot be had.
struct PipelineOption {
    ScheduleKind kind = ScheduleKind::k1F1B;
    PipelineShape shape;
    std::string why_not;  // empty: the rest is there
    PipelineSchedule schedule;
    StageChoice choice;
    PipelineRun run;
};

// One line a schedule: time of a step, bubble, the most activations and memory of its stages.
[[nodiscard]] std::string schedules_table(const std::vector<PipelineOption>& options);
// One line a part of the model, in the order of stages: its segments, parameters, FLOPs, time; of
// each stage states and activations; then parameters that several stages read.
[[nodiscard]] std::string stages_table(const PipelineOption& option, const ModelInfo& model);
// One line for each number of ranks.
[[nodiscard]] std::string scale_table(const std::vector<ScaleCost>& costs);

// The same as JSON values. UNITS: bytes, seconds, FLOPs of a micro batch's forward.
void schedules_json(const std::vector<PipelineOption>& options, const ModelInfo& model,
                    JsonWriter& json);
void scale_json(const std::vector<ScaleCost>& costs, JsonWriter& json);

}  // namespace dslaunch
