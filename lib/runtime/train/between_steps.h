// The work of a job between its steps that is not training itself. The trainer calls it and the job
// implements it. Data path: trainer -> [here] -> lib/job. Threads: every rank calls it in the
// compute lane's thread.
#pragma once

#include <cstdint>
#include <span>

#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

// The times and memory of a step on this rank.
struct StepRun {
    int64_t step = 0;
    double seconds = 0;  // from the end of the previous step to the end of this step
    const plan::StepPlan* plan = nullptr;
    std::span<const plan::InstructionSpan> spans;  // one per instruction of the plan
};

// The calls that a trainer makes between steps.
class BetweenSteps {
  public:
    virtual ~BetweenSteps() = default;

    // Called before the first instruction of each step. The step makes update number UPDATE (from
    // 1) unless it is skipped. Returns a new plan for this step, or null to keep the plan of the
    // previous step. All ranks must return equal plans. The new plan must outlive the trainer. It
    // may differ from the previous plan only in the exchanges between hosts.
    [[nodiscard]] virtual const plan::StepPlan* before_step(int64_t /*update*/) { return nullptr; }
    // Called after each step with its LOSS, the mean over all micro batches. SKIPPED is true if
    // gradients were not finite, so that nothing was updated.
    virtual void end_step(int64_t /*step*/, double /*loss*/, bool /*skipped*/) {}
    // Called after each step except the last, while nothing is being saved. Returns another plan
    // for the next steps, or null to keep the plan. All ranks return the same. The plan must
    // outlive the trainer, and may differ only in the placement of chunks.
    [[nodiscard]] virtual const plan::StepPlan* after_step(const StepRun& /*run*/) {
        return nullptr;
    }
    // Called on rank 0 after the step that the config says to trace.
    virtual void trace_step(const StepRun& /*run*/) {}
};

}  // namespace dslaunch::runtime
