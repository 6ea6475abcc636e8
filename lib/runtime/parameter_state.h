// The seam between the trainer and ZeRO: who holds parameters, gradients and optimizer states, and
// carries out the instructions of the plan that concern them. Implemented in lib/zero, one class
// per way of sharding.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/step_plan.h"

namespace dslaunch {

class ParameterState {
  public:
    virtual ~ParameterState() = default;

    // LR for the updates of this step, which counts from 1. Before any instruction of the step.
    virtual void begin_step(int64_t step, double lr) = 0;
    // An instruction that is not the segment runner's. Called by the instruction's lane.
    virtual void run(const Instruction& instruction) = 0;
    // The backward of SEGMENT in one micro step is done. Compute lane.
    virtual void end_segment(int segment) = 0;
    // All instructions of the step have run. Where they only started work, what went wrong in it is
    // thrown here at the latest. Compute lane.
    virtual void finish_step() {}
    // Global L2 norm of the last step's mean gradient before clipping, where it was computed.
    [[nodiscard]] virtual std::optional<double> gradient_norm() const = 0;
    // Waits until the parameters of the last step can be read whole.
    virtual void settle() = 0;
    // Optimizer states held by this rank.
    [[nodiscard]] virtual int64_t optimizer_bytes() const = 0;
};

}  // namespace dslaunch
