// The time of a step that ran: how long each lane was busy, and which lanes the step as a whole
// waited for. Data path: executor's spans -> step times -> placement choice. Pure.
#pragma once

#include <array>
#include <span>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// UNITS: seconds; by lane where there are several.
struct StepTimes {
    double step_s = 0;  // all of it, what is between two steps included
    std::array<double, kLanes> busy_s{};
    // Times of the chain of instructions that the step's end waited for, each for the one before
    // it. Together they are the time from the begin of the step to its last instruction's end.
    std::array<double, kLanes> on_path_s{};

    [[nodiscard]] double busy(Lane lane) const { return busy_s[static_cast<size_t>(lane)]; }
    [[nodiscard]] double on_path(Lane lane) const { return on_path_s[static_cast<size_t>(lane)]; }
};

// SPANS: of the plan's instructions, in their order. STEP_S: as StepTimes has it.
[[nodiscard]] StepTimes step_times(const StepPlan& plan, std::span<const InstructionSpan> spans,
                                   double step_s);

// Returns the median of each time by itself; of an even number the upper of the two in the middle.
// REQUIRES: one at least.
[[nodiscard]] StepTimes median_of(std::span<const StepTimes> steps);

}  // namespace dslaunch::plan
