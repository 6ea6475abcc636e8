// A pipeline stage's share of a model: ranges of its segments, planned as if they were a whole
// model. Data path: model, parts of the model -> stage model -> layout, step plan. Pure.
#pragma once

#include <vector>

#include "plan/layout/flat_layout.h"
#include "plan/model/model_info.h"
#include "plan/pipeline/stage_work.h"

namespace dslaunch::plan {

// Returns the segments of each stage, by stage and chunk. PARTS are indexed by part of the model.
[[nodiscard]] std::vector<std::vector<SegmentRange>> ranges_of_stages(
    ScheduleKind kind, const PipelineShape& shape, const std::vector<SegmentRange>& parts);

// Returns MODEL with only the segments of RANGES, one range after the other. Parameters keep their
// indices, but no segment reads parameters of other stages any more.
[[nodiscard]] ModelInfo stage_model(const ModelInfo& model,
                                    const std::vector<SegmentRange>& ranges);

// Returns the work of STAGE and its messages; `ties` of the result is empty. PARTS are indexed by
// part of the model.
[[nodiscard]] StageWork stage_work(const ModelInfo& model, const std::vector<SegmentRange>& parts,
                                   const PipelineSchedule& schedule, int stage);

// Returns the value for FlatLayoutOptions::part_begins.
[[nodiscard]] std::vector<int> part_begins(const StageWork& work);

// Returns the parameters of TIED that the stages train. STAGES are the segments of each stage.
// Throws Error{kConfig} if one stage trains such a parameter and another stage only reads it, since
// the copy of the other stage would never change.
[[nodiscard]] std::vector<TiedParameter> trained_ties(
    const ModelInfo& model, const std::vector<std::vector<SegmentRange>>& stages,
    const std::vector<TiedParameter>& tied);
// Returns one list for each bucket of a stage with TIES: the stages that share the bucket's tied
// parameter. The list is empty if the bucket has no tied parameter.
[[nodiscard]] std::vector<std::vector<int>> stages_of_buckets(
    const FlatLayout& layout, const std::vector<TiedParameter>& ties);
// Returns the parameters in TIES that both STAGE and an earlier stage have.
[[nodiscard]] std::vector<int> counted_elsewhere(const std::vector<TiedParameter>& ties, int stage);
// Returns the ties of STAGE.
[[nodiscard]] std::vector<TiedParameter> ties_of_stage(const std::vector<TiedParameter>& ties,
                                                       int stage);

}  // namespace dslaunch::plan
