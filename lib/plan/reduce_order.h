// When a step's gradients are summed and its parameters updated. Where it stands: step plan options
// -> [here] -> step plan builder. Pure.
#pragma once

#include <vector>

#include "plan/flat_layout.h"
#include "plan/model_info.h"
#include "plan/step_plan.h"

namespace dslaunch {

// Aborts on options that contradict each other.
void check_options(const StepPlanOptions& options);

// Whether a bucket may be updated as soon as it is reduced, before others are.
[[nodiscard]] bool updates_early(const StepPlanOptions& options);
// Whether whoever needs the sums reads every local rank's gradients itself: no Reduce.
[[nodiscard]] bool sums_itself(const StepPlanOptions& options);

// Trained buckets in the order in which a micro step reduces them, tied ones behind; and in which
// the step updates them.
[[nodiscard]] std::vector<int> reduce_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);
[[nodiscard]] std::vector<int> update_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);

}  // namespace dslaunch
