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

// Returns whether a bucket may be updated as soon as it is reduced, before others are.
[[nodiscard]] bool updates_early(const StepPlanOptions& options);
// Returns whether whoever needs the sums reads every local rank's gradients itself: no Reduce.
[[nodiscard]] bool sums_itself(const StepPlanOptions& options);

// Trained buckets in the order in which the step reduces them, each as often as it does, tied ones
// at the end; and, each once, in which it updates them.
[[nodiscard]] std::vector<int> reduce_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);
[[nodiscard]] std::vector<int> update_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);

// Returns by segment the trained buckets that its backward adds to. A bucket with a parameter that
// several parts of the stage read is added to by the part of its ready segment: the others' sums
// wait beside it for the same micro step's turn there.
[[nodiscard]] std::vector<std::vector<int>> gradient_buckets_of_segments(
    const ModelInfo& model, const FlatLayout& layout, const StepPlanOptions& options);

}  // namespace dslaunch::plan
