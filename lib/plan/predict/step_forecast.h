// The forecast of a step. Makes a timed plan of the step plans of ranks, with the known times and
// rates of segments, updates, sums, links and disks. Data path: step plans, times of segments,
// machine rates -> [here] -> time/timed_plan.h -> trace, `dslaunch plan --forecast`. Pure.
#pragma once

#include <span>
#include <vector>

#include "plan/step/step_plan.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {

// The step of one rank. The plan, the model and the times must outlive the RankStep and all results
// that are computed from it.
struct RankStep {
    const StepPlan* plan = nullptr;
    const ModelInfo* model = nullptr;
    std::span<const SegmentTimes> times;  // by segment of the model
};

// Returns how many seconds each instruction takes if no other instruction of the rank runs.
// Instructions that only wait take no time. Transfers between hosts or to disks take no time if the
// rate is not known.
[[nodiscard]] std::vector<double> instruction_seconds(const RankStep& step,
                                                      const MachineRates& rates);

// Returns the spans of the instructions, by rank. STEPS contains the step of one rank; for a
// pipeline, it contains the step of one rank of each stage, in the order of the stages. The
// forecast assumes that the other ranks of a stage run the same step at the same time. Sums and
// updates that run beside the compute lane share the rank's processors with it; RATES gives the
// speeds of both. Transfers to other hosts, stages or disks use no processor. REQUIRES: check_plans
// finds no fault.
[[nodiscard]] std::vector<std::vector<InstructionSpan>> forecast_steps(
    std::span<const RankStep> steps, const MachineRates& rates);

// Returns the time from the beginning of the step to the end of its last instruction, in seconds.
[[nodiscard]] double end_of(std::span<const std::vector<InstructionSpan>> spans);

}  // namespace dslaunch::plan
