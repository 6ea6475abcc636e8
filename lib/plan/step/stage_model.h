// What a pipeline's stage has of a model: ranges of its segments, planned as a model of their own.
// Where it stands: model info, parts of the model -> stage model -> layout, step plan. Pure.
#pragma once

#include <vector>

#include "plan/model/model_info.h"
#include "plan/pipeline/stage_choice.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Of PARTS, by part of the model, those of each stage, by chunk.
[[nodiscard]] std::vector<std::vector<SegmentRange>> ranges_of_stages(
    ScheduleKind kind, const PipelineShape& shape, const std::vector<SegmentRange>& parts);

// MODEL with the segments of RANGES alone, one behind the other. Parameters keep their numbers;
// those of other stages are read by no segment.
[[nodiscard]] ModelInfo stage_model(const ModelInfo& model,
                                    const std::vector<SegmentRange>& ranges);

// What STAGE runs, and what it gets from others. PARTS: by part of the model. It has no ties yet.
[[nodiscard]] StageWork stage_work(const ModelInfo& model, const std::vector<SegmentRange>& parts,
                                   const PipelineSchedule& schedule, int stage);

// As FlatLayoutOptions has them.
[[nodiscard]] std::vector<int> part_begins(const StageWork& work);

// Of TIED those that the stages, of whose ranges STAGES are, train. Throws Error{kConfig} where one
// of them reads such a parameter and does not train it, which would keep it as it was.
[[nodiscard]] std::vector<TiedParameter> trained_ties(
    const ModelInfo& model, const std::vector<std::vector<SegmentRange>>& stages,
    const std::vector<TiedParameter>& tied);
// Of each bucket of a stage that has TIES the stages of its tied parameter, empty for others.
[[nodiscard]] std::vector<std::vector<int>> stages_of_buckets(
    const FlatLayout& layout, const std::vector<TiedParameter>& ties);
// Of TIES, those of STAGE, the parameters that an earlier stage has too.
[[nodiscard]] std::vector<int> counted_elsewhere(const std::vector<TiedParameter>& ties, int stage);
// Of TIES those that STAGE has.
[[nodiscard]] std::vector<TiedParameter> ties_of_stage(const std::vector<TiedParameter>& ties,
                                                       int stage);

}  // namespace dslaunch::plan
