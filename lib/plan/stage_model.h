// What a pipeline's stage has of a model: a range of its segments, planned as a model of its own.
// Where it stands: model info, stages -> stage model -> layout, step plan. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/model_info.h"
#include "plan/step_plan.h"

namespace dslaunch {

// Segments [begin, end).
struct SegmentSpan {
    int begin = 0;
    int end = 0;
};

// MODEL with the segments of SPAN alone. Parameters keep their numbers; those of other stages are
// read by no segment.
[[nodiscard]] ModelInfo stage_model(const ModelInfo& model, const SegmentSpan& span);

// What the stage runs: ORDER, and what it gets from the stage before.
[[nodiscard]] StageWork stage_work(const ModelInfo& model, const SegmentSpan& span,
                                   std::vector<PipelineWork> order);

// Parameters that several stages read, by index. STAGES tile the segments.
[[nodiscard]] std::vector<int> parameters_of_several(const ModelInfo& model,
                                                     const std::vector<SegmentSpan>& stages);

}  // namespace dslaunch
