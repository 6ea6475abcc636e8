// Segments that are recomputed together (activation checkpointing). A group keeps only its inputs
// in the forward and runs its forward again before its backward. Data path: model info, config ->
// [here] -> step plan builder, segment runner. Pure.
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

// Divides each part of the model into GROUPS ranges with about equal activation bytes, and returns
// them in order. A segment without a backward is in no group. If GROUPS is 0, there are no groups.
// If PARTS is empty, the model is one part.
[[nodiscard]] std::vector<RecomputeGroup> make_recompute_groups(
    const ModelInfo& model, int64_t groups, const std::vector<StagePart>& parts = {});

}  // namespace dslaunch::plan
