// The time of a step that ran: the busy time of each lane, and the lanes that the step as a whole
// waited for. Data path: executor's spans -> step times -> placement choice. Pure.
#pragma once

#include <array>
#include <span>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// UNITS: seconds. Arrays are by lane.
struct StepTimes {
    double step_s = 0;  // the whole step, with the time between two steps
    std::array<double, kLanes> busy_s{};
    // Times of the chain of instructions that the step's end waited for, each of which waited for
    // the one before it. Their sum is the time from the begin of the step to its last instruction's
    // end.
    std::array<double, kLanes> on_path_s{};

    [[nodiscard]] double busy(Lane lane) const { return busy_s[static_cast<size_t>(lane)]; }
    [[nodiscard]] double on_path(Lane lane) const { return on_path_s[static_cast<size_t>(lane)]; }
};

// SPANS are the spans of the plan's instructions, in order. STEP_S becomes StepTimes::step_s.
[[nodiscard]] StepTimes step_times(const StepPlan& plan, std::span<const InstructionSpan> spans,
                                   double step_s);

// Returns the median of each time by itself; of an even number the upper of the two in the middle.
// REQUIRES: STEPS is not empty.
[[nodiscard]] StepTimes median_of(std::span<const StepTimes> steps);

}  // namespace dslaunch::plan
