// What a job does between its steps beside training: the trainer calls it, the job implements it.
// Where it stands: trainer -> [here] -> lib/job. On every rank, in the compute lane's thread.
#pragma once

#include <cstdint>
#include <span>

#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

// A step as it ran on this rank.
struct StepRun {
    int64_t step = 0;
    double seconds = 0;  // of all of it, from the end of the one before
    const plan::StepPlan* plan = nullptr;
    std::span<const plan::InstructionSpan> spans;  // of the plan's instructions
};

class BetweenSteps {
  public:
    virtual ~BetweenSteps() = default;

    // Before the first instruction of each step.
    virtual void before_step() {}
    // After a step that is not the last, while nothing is being saved: another plan for the next
    // ones, which must outlive the trainer and differs in the placement of chunks alone, or null:
    // the plan stays. The same on all ranks.
    [[nodiscard]] virtual const plan::StepPlan* after_step(const StepRun& run) {
        static_cast<void>(run);
        return nullptr;
    }
    // After the step that the config traces, on rank 0.
    virtual void trace_step(const StepRun& run) { static_cast<void>(run); }
};

}  // namespace dslaunch::runtime
