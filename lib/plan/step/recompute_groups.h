// Segments that are recomputed together (activation checkpointing): a group keeps only its inputs
// in the forward and runs again before its backward. Data path: model info, config -> [here]
// -> step plan builder, segment runner. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// The segments [begin, end).
struct RecomputeGroup {
    int begin = 0;
    int end = 0;
};

// Returns GROUPS ranges of each part of the model, of about equal activation bytes, in order. A
// segment without a backward is in no group. GROUPS 0: no groups. PARTS empty: one part.
[[nodiscard]] std::vector<RecomputeGroup> make_recompute_groups(
    const ModelInfo& model, int64_t groups, const std::vector<StagePart>& parts = {});

}  // namespace dslaunch::plan
