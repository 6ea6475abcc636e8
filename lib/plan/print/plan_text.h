// Prints a plan as `dslaunch plan` shows it: as text, or with --json as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/text/json.h"
#include "plan/step/plan_check.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Returns one line, such as "Backward segment 3 (blocks.2), micro step 0".
[[nodiscard]] std::string describe(const Instruction& instruction, const ModelInfo& model);
// Returns a summary of a step: the bytes that it moves, the bytes that it sends to other hosts, and
// the memory that it needs, by kind and by tier.
[[nodiscard]] std::string plan_summary(const StepPlan& plan);

// A row of a table about a segment: the segment's name and the cells after it.
struct SegmentRow {
    std::string name;
    std::vector<std::string> cells;
};
// Returns ROWS with the number of each segment before its name. If IS_FOLDED, equal layers that
// follow each other become one row, such as "1..28" with the name "model.layers.1 to 28, each". If
// a layer has several segments, each of these segments gets a row: "1, 3..7" for the first and "2,
// 4..8" for the second.
[[nodiscard]] std::vector<std::vector<std::string>> numbered_rows(
    const std::vector<SegmentRow>& rows, bool is_folded);
// Returns a line for each segment: nodes, parameters, bytes and FLOPs, in the form of
// numbered_rows().
[[nodiscard]] std::string segments_table(const ModelInfo& model, bool is_folded);
// Returns a line for each instruction, with its bytes and its waits.
[[nodiscard]] std::string instructions_table(const StepPlan& plan, const ModelInfo& model,
                                             const FlatLayout& layout);
// Writes the plan as one JSON object. UNITS: bytes. In memory.by_kind, each kind has the largest
// number of its bytes that are in use at the same time.
void plan_json(const StepPlan& plan, const ModelInfo& model, const FlatLayout& layout,
               JsonWriter& json);

}  // namespace dslaunch::plan
