// A plan as the text, or with --json the JSON, that `dslaunch plan` prints.
#pragma once

#include <string>

#include "base/text/json.h"
#include "plan/step/plan_check.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// One line: "Backward segment 3 (blocks.2), micro step 0".
[[nodiscard]] std::string describe(const Instruction& instruction, const ModelInfo& model);
// Bytes moved and sent to other hosts in a step, memory by kind and by tier.
[[nodiscard]] std::string plan_summary(const StepPlan& plan);
// A line for each segment: nodes, parameters, bytes and FLOPs.
[[nodiscard]] std::string segments_table(const ModelInfo& model);
// A line for each instruction, with its bytes and what it waits for.
[[nodiscard]] std::string instructions_table(const StepPlan& plan, const ModelInfo& model,
                                             const FlatLayout& layout);
// The plan as one JSON object. UNITS: bytes. memory.by_kind is the most of each kind at once, as in
// the table.
void plan_json(const StepPlan& plan, const ModelInfo& model, const FlatLayout& layout,
               JsonWriter& json);

}  // namespace dslaunch::plan
