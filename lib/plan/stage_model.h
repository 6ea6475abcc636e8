// What a pipeline's stage has of a model: a range of its segments, planned as a model of its own.
// Where it stands: model info, stages -> stage model -> layout, step plan. Pure.
#pragma once

#include <vector>

#include "plan/model_info.h"
#include "plan/stage_choice.h"
#include "plan/step_plan.h"

namespace dslaunch {

// MODEL with the segments of RANGE alone. Parameters keep their numbers; those of other stages are
// read by no segment.
[[nodiscard]] ModelInfo stage_model(const ModelInfo& model, const SegmentRange& range);

// What the stage runs: ORDER, and what it gets from the stage before.
[[nodiscard]] StageWork stage_work(const ModelInfo& model, const SegmentRange& range,
                                   std::vector<PipelineWork> order);

}  // namespace dslaunch
