// The forecast of a step: the step plans of ranks as a timed plan, by the known times and rates of
// segments, updates, sums, links and disks. Data path: step plans, times of segments, machine rates
// -> [here] -> time/timed_plan.h -> trace, `dslaunch plan --forecast`. Pure.
#pragma once

#include <span>
#include <vector>

#include "plan/step/step_plan.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// One rank's step. All three must outlive the results made from them.
struct RankStep {
    const StepPlan* plan = nullptr;
    const ModelInfo* model = nullptr;
    std::span<const SegmentTimes> times;  // by segment of the model
};

// Returns the seconds that each instruction takes if nothing else of the rank runs. Instructions
// that only wait take no time, as do transfers between hosts or to disks at a rate that is not
// known.
[[nodiscard]] std::vector<double> instruction_seconds(const RankStep& step,
                                                      const MachineRates& rates);

// Returns the spans of the instructions, by rank. STEPS are of one rank, or of one rank of each
// stage of a pipeline in order; a stage's other ranks count as doing the same at the same time. The
// compute lane and the sums and updates beside it share the rank's processors, at the speeds of
// RATES. Transfers to other hosts, stages or disks take no processor. REQUIRES: check_plans finds
// nothing.
[[nodiscard]] std::vector<std::vector<InstructionSpan>> forecast_steps(
    std::span<const RankStep> steps, const MachineRates& rates);

// Returns the time from the begin of the step to the end of its last instruction, in seconds.
[[nodiscard]] double end_of(std::span<const std::vector<InstructionSpan>> spans);

}  // namespace dslaunch::plan
