// The forecast of a step: the step plans of ranks as a timed plan, by what segments, updates, sums,
// links and disks are known to take. Data path: step plans, times of segments, machine rates
// -> [here] -> time/timed_plan.h -> trace, `dslaunch plan --forecast`. Pure.
#pragma once

#include <span>
#include <vector>

#include "plan/step/step_plan.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// All three must outlive what is made of them.
struct RankStep {
    const StepPlan* plan = nullptr;
    const ModelInfo* model = nullptr;
    std::span<const SegmentTimes> times;  // by segment of the model
};

// Returns how long each instruction takes when nothing else of the rank runs, in seconds.
// Instructions that only wait take no time; what crosses hosts or disks at a rate that is not known
// takes none either.
[[nodiscard]] std::vector<double> instruction_seconds(const RankStep& step,
                                                      const MachineRates& rates);

// Returns when the instructions run, by rank. STEPS: of one rank, or of one rank of each stage of a
// pipeline in their order; the other ranks of a stage are taken to do the same at the same time.
// The compute lane and sums and updates beside it share the rank's processors: both at once are as
// fast as the rates say. What goes to other hosts, stages or disks takes no processor. REQUIRES:
// check_plans finds nothing.
[[nodiscard]] std::vector<std::vector<InstructionSpan>> forecast_steps(
    std::span<const RankStep> steps, const MachineRates& rates);

// Returns the time from the begin of the step to the end of its last instruction, in seconds.
[[nodiscard]] double end_of(std::span<const std::vector<InstructionSpan>> spans);

}  // namespace dslaunch::plan
