// A plan in words: `dslaunch plan` prints it, --json for machines.
#pragma once

#include <string>

#include "base/json.h"
#include "plan/plan_check.h"
#include "plan/step_plan.h"

namespace dslaunch {

// One line: "Backward segment 3 (blocks.2), micro step 0 [compute]".
[[nodiscard]] std::string describe(const Instruction& instruction, const ModelInfo& model);
// Segments, instructions with their waits, bytes moved and memory by tier.
[[nodiscard]] std::string plan_table(const StepPlan& plan, const ModelInfo& model,
                                     const FlatLayout& layout);
void plan_json(const StepPlan& plan, const ModelInfo& model, const FlatLayout& layout,
               JsonWriter& json);

}  // namespace dslaunch
