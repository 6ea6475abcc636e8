// A pipeline stage's share of a model: ranges of its segments, planned as a model of their own.
// Data path: model info, parts of the model -> stage model -> layout, step plan. Pure.
#pragma once

#include <vector>

#include "plan/model/model_info.h"
#include "plan/pipeline/stage_work.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Returns the parts of each stage, by stage and chunk. PARTS are by part of the model.
[[nodiscard]] std::vector<std::vector<SegmentRange>> ranges_of_stages(
    ScheduleKind kind, const PipelineShape& shape, const std::vector<SegmentRange>& parts);

// Returns MODEL with only the segments of RANGES, one after the other. Parameters keep their
// indices; no segment reads parameters of other stages.
[[nodiscard]] ModelInfo stage_model(const ModelInfo& model,
                                    const std::vector<SegmentRange>& ranges);

// Returns the work of STAGE and its messages, without ties. PARTS are by part of the model.
[[nodiscard]] StageWork stage_work(const ModelInfo& model, const std::vector<SegmentRange>& parts,
                                   const PipelineSchedule& schedule, int stage);

// Returns the value for FlatLayoutOptions::part_begins.
[[nodiscard]] std::vector<int> part_begins(const StageWork& work);

// Returns the parameters of TIED that the stages train. STAGES are the ranges of each stage. Throws
// Error{kConfig} if a stage reads such a parameter and does not train it, since its copy would not
// change.
[[nodiscard]] std::vector<TiedParameter> trained_ties(
    const ModelInfo& model, const std::vector<std::vector<SegmentRange>>& stages,
    const std::vector<TiedParameter>& tied);
// Returns by bucket of a stage with TIES the stages of the bucket's tied parameter; empty for other
// buckets.
[[nodiscard]] std::vector<std::vector<int>> stages_of_buckets(
    const FlatLayout& layout, const std::vector<TiedParameter>& ties);
// Returns the parameters of STAGE's TIES that an earlier stage has too.
[[nodiscard]] std::vector<int> counted_elsewhere(const std::vector<TiedParameter>& ties, int stage);
// Returns the ties of STAGE.
[[nodiscard]] std::vector<TiedParameter> ties_of_stage(const std::vector<TiedParameter>& ties,
                                                       int stage);

}  // namespace dslaunch::plan
