// The order in which a step's gradients are summed and its parameters updated. Data path:
// step plan options -> [here] -> step plan builder. Pure.
#pragma once

#include <vector>

#include "plan/layout/flat_layout.h"
#include "plan/model/model_info.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Aborts on options that contradict each other.
void check_options(const StepPlanOptions& options);

// Returns true if a bucket may be updated as soon as it is reduced, before others are.
[[nodiscard]] bool updates_early(const StepPlanOptions& options);
// Returns true if there is no Reduce: the instruction that needs the sums reads every local rank's
// gradients itself.
[[nodiscard]] bool sums_itself(const StepPlanOptions& options);

// Trained buckets in the order in which the step reduces them, each as often as it is reduced, tied
// ones at the end; and, each once, in the order of their updates.
[[nodiscard]] std::vector<int> reduce_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);
[[nodiscard]] std::vector<int> update_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);

// Returns by segment the trained buckets that its backward adds to. If several parts of the stage
// read a parameter, the part of the bucket's ready segment adds to the bucket: the other parts'
// sums wait beside it for the turn of the same micro step there.
[[nodiscard]] std::vector<std::vector<int>> gradient_buckets_of_segments(
    const ModelInfo& model, const FlatLayout& layout, const StepPlanOptions& options);

}  // namespace dslaunch::plan
