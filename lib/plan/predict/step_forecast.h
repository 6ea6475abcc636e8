// What a step will take, before it runs: a time for each instruction of a plan, from what segments,
// updates, sums and links are known to take, and the lanes run with them. Where it stands: step
// plans, times of segments, machine rates -> [here] -> trace, `dslaunch plan --forecast`. Pure.
#pragma once

#include <span>
#include <vector>

#include "plan/predict/machine_rates.h"
#include "plan/predict/pipeline_costs.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// A plan and how long each of its instructions takes when nothing else of the rank runs. UNITS:
// seconds.
struct TimedPlan {
    const StepPlan* plan = nullptr;
    std::vector<double> seconds;    // by instruction, alone on its processors
    double computing_beside = 0.5;  // speeds, as MachineRates has them
    double updating_beside = 0.5;
};

// TIMES: by segment of MODEL, with the threads of a rank. Instructions that only wait take no time;
// what crosses hosts or disks at a rate that is not known takes none either.
[[nodiscard]] TimedPlan time_plan(const StepPlan& plan, const ModelInfo& model,
                                  std::span<const SegmentTimes> times, const MachineRates& rates);

// When the instructions run, by plan. PLANS: of one rank, or of one rank of each stage of a
// pipeline in their order; the other ranks of a stage are taken to do the same at the same time.
// The compute lane and sums and updates beside it share the rank's processors: both at once are
// as fast as the rates say. What goes to other hosts, stages or disks takes no processor. REQUIRES:
// check_plans finds nothing.
[[nodiscard]] std::vector<std::vector<InstructionSpan>> run_timed_plans(
    std::span<const TimedPlan> plans);

// From the begin of the step to the end of its last instruction. UNITS: seconds.
[[nodiscard]] double end_of(std::span<const std::vector<InstructionSpan>> spans);

}  // namespace dslaunch::plan
