// A pipeline stage's share of a model: ranges of its segments, planned as a model of their own.
// Data path: model info, parts of the model -> stage model -> layout, step plan. Pure.
#pragma once

#include <vector>

#include "plan/model/model_info.h"
#include "plan/pipeline/stage_choice.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Returns those of PARTS that each stage has, by chunk. PARTS: by part of the model.
[[nodiscard]] std::vector<std::vector<SegmentRange>> ranges_of_stages(
    ScheduleKind kind, const PipelineShape& shape, const std::vector<SegmentRange>& parts);

// Returns MODEL with the segments of RANGES alone, one behind the other. Parameters keep their
// numbers; those of other stages are read by no segment.
[[nodiscard]] ModelInfo stage_model(const ModelInfo& model,
                                    const std::vector<SegmentRange>& ranges);

// Returns what STAGE runs and gets from others, without ties. PARTS: by part of the model.
[[nodiscard]] StageWork stage_work(const ModelInfo& model, const std::vector<SegmentRange>& parts,
                                   const PipelineSchedule& schedule, int stage);

// Returns FlatLayoutOptions::part_begins.
[[nodiscard]] std::vector<int> part_begins(const StageWork& work);

// Returns those of TIED that the stages train. STAGES: ranges of each. Throws Error{kConfig} where
// one of them reads such a parameter and does not train it, which would keep it as it was.
[[nodiscard]] std::vector<TiedParameter> trained_ties(
    const ModelInfo& model, const std::vector<std::vector<SegmentRange>>& stages,
    const std::vector<TiedParameter>& tied);
// Returns for each bucket of a stage that has TIES the stages of its tied parameter, empty for
// others.
[[nodiscard]] std::vector<std::vector<int>> stages_of_buckets(
    const FlatLayout& layout, const std::vector<TiedParameter>& ties);
// Returns the parameters of those TIES of STAGE that an earlier stage has too.
[[nodiscard]] std::vector<int> counted_elsewhere(const std::vector<TiedParameter>& ties, int stage);
// Returns those of TIES that STAGE has.
[[nodiscard]] std::vector<TiedParameter> ties_of_stage(const std::vector<TiedParameter>& ties,
                                                       int stage);

}  // namespace dslaunch::plan
