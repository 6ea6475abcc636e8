// The seam between the trainer and ZeRO: the holder of parameters, gradients and optimizer states,
// which carries out the plan's instructions that concern them. Implemented in lib/zero.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "config/run/scheduler_config.h"
#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

class MemoryLender;
class UpdateWitness;

struct StepSettings {
    int64_t step = 1;    // counted from 1
    int64_t update = 1;  // the update that it makes unless it is skipped, from 1
    double lr = 0;
    double loss_scale = 1;  // factor of the loss whose gradients these are
    bool logged = false;  // true if the log tells of this step; costly figures may then be measured
    std::optional<config::Betas> betas = {};  // in place of the optimizer's
};

// Gradients that were not finite, as agreed by all ranks.
struct Overflow {
    int parameter = -1;  // the model's first such parameter; -1: the sum of finite ones overflowed
    int rank = -1;       // the first rank that had it; -1: no single rank had it
};

class SteppingState {
  public:
    virtual ~SteppingState() = default;

    // Called before any instruction of the step.
    virtual void begin_step(const StepSettings& settings) = 0;
    // Runs an instruction that is not the segment runner's. Called by the instruction's lane.
    virtual void run(const plan::Instruction& instruction) = 0;
    // Returns the lender of gradients' memory in a backward, nullptr for autograd's own. Compute
    // lane.
    [[nodiscard]] virtual MemoryLender* gradient_memory() = 0;
    // Say that a backward of MICRO_STEP begins, and that SEGMENT's in it is done. Compute lane.
    virtual void begin_backward(int micro_step) = 0;
    virtual void end_segment(int segment) = 0;
    // Returns this rank's gradients of a tied bucket, complete. kPost gives the others the values
    // written there. REQUIRES: kTie of the bucket. Compute lane.
    [[nodiscard]] virtual std::span<float> tied_gradients(int bucket) = 0;
    // Returns the global L2 norm of the last step's mean gradient before clipping, if it was
    // computed.
    [[nodiscard]] virtual std::optional<double> gradient_norm() const = 0;
    // Returns the overflow if the last step was skipped because its gradients were not finite.
    [[nodiscard]] virtual std::optional<Overflow> overflow() const = 0;
    // Gives the next steps PLAN, which differs only in the placement of chunks and in what hosts
    // exchange, and must outlive the state. Chunks with another place move. Every rank calls it,
    // between steps. Blocks.
    virtual void change_plan(const plan::StepPlan& plan) = 0;
    // Sets the witness of every update of an element that this rank writes; null: nobody. WITNESS
    // must outlive the state. REQUIRES: the values are in the host's memory.
    virtual void set_witness(UpdateWitness* witness) = 0;
    // Waits until the last step's updates are done on every rank.
    virtual void settle() = 0;
    // Brings hosts that have stepped on their own together, so that all hold the same parameters
    // and states. Every rank calls it, between steps. Blocks.
    virtual void meet() = 0;
};

}  // namespace dslaunch::runtime
