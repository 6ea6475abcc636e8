// The seam between the trainer and ZeRO: who holds parameters, gradients and optimizer states, and
// carries out the instructions of the plan that concern them. Implemented in lib/zero.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/check.h"
#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

class MemoryLender;

struct StepSettings {
    int64_t step = 1;  // counts from 1
    double lr = 0;
    double loss_scale = 1;  // the gradients are of the loss times this
    bool logged = false;    // the log tells of this step: what is costly to know may be measured
};

// Gradients that were not finite, as all ranks agree.
struct Overflow {
    int parameter = -1;  // the first of the model's, -1: the sum of finite ones overflowed
    int rank = -1;       // the first that had it, -1: none alone
};

class SteppingState {
  public:
    virtual ~SteppingState() = default;

    // Before any instruction of the step.
    virtual void begin_step(const StepSettings& settings) = 0;
    // An instruction that is not the segment runner's. Called by the instruction's lane.
    virtual void run(const plan::Instruction& instruction) = 0;
    // Gives the memory of gradients in a backward; nullptr: autograd's own will do. Compute lane.
    [[nodiscard]] virtual MemoryLender* gradient_memory() { return nullptr; }
    // A backward of MICRO_STEP begins, and, of SEGMENT in it, is done. Compute lane.
    virtual void begin_backward(int micro_step) { static_cast<void>(micro_step); }
    virtual void end_segment(int segment) = 0;
    // This rank's gradients of a tied bucket, complete: what is written there is what kPost gives
    // the others. REQUIRES: kTie of it. Compute lane.
    [[nodiscard]] virtual std::span<float> tied_gradients(int bucket) {
        DSL_CHECK(false, "bucket {} is tied, in a state that has no stages", bucket);
    }
    // All instructions of the step have run. Where they only started work, what went wrong in it is
    // thrown here at the latest. Compute lane.
    virtual void finish_step() {}
    // Global L2 norm of the last step's mean gradient before clipping, where it was computed.
    [[nodiscard]] virtual std::optional<double> gradient_norm() const = 0;
    // Whether the last step was skipped because its gradients were not finite.
    [[nodiscard]] virtual std::optional<Overflow> overflow() const { return std::nullopt; }
    // Between steps, by every rank: PLAN, which differs in the placement of chunks alone, is what
    // the next steps run; it must outlive the state. What has another place in it moves. Blocks.
    virtual void change_plan(const plan::StepPlan& plan) {
        DSL_CHECK(false, "a state whose placement is fixed is given another plan of rank {}",
                  plan.rank);
    }
    // Waits until the last step's updates are done on every rank.
    virtual void settle() = 0;
};

}  // namespace dslaunch::runtime
