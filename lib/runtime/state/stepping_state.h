// The interface between the trainer and ZeRO, which owns parameters, gradients and optimizer states
// and carries out the plan's instructions that concern them. Implemented in lib/zero.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "config/run/scheduler_config.h"
#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

class MemoryLender;
class UpdateWitness;

// The settings of one step.
struct StepSettings {
    int64_t step = 1;    // counted from 1
    int64_t update = 1;  // number of the step's update, from 1, unless the step is skipped
    double lr = 0;
    double loss_scale = 1;  // the factor by which the loss is multiplied
    bool logged = false;    // true if this step is logged: costly numbers may be measured
    std::optional<config::Betas> betas = {};  // replace the optimizer's betas if set
};

// Gradients that were not finite, as agreed by all ranks.
struct Overflow {
    int parameter = -1;  // the first parameter with such a gradient; -1 if only the norm overflowed
    int rank = -1;  // the first rank with such a gradient; -1 if only a sum over ranks overflowed
};

// A state that carries out the instructions of a step.
class SteppingState {
  public:
    virtual ~SteppingState() = default;

    // Called before any instruction of the step.
    virtual void begin_step(const StepSettings& settings) = 0;
    // Runs an instruction that the segment runner does not run. Called by the instruction's lane.
    virtual void run(const plan::Instruction& instruction) = 0;
    // Returns the lender that provides the memory of gradients in a backward pass, or nullptr if
    // autograd uses its own memory. The compute lane calls it.
    [[nodiscard]] virtual MemoryLender* gradient_memory() = 0;
    // begin_backward() announces a backward pass of MICRO_STEP. end_segment() announces that
    // SEGMENT's part of the pass is done. The compute lane calls both functions.
    virtual void begin_backward(int micro_step) = 0;
    virtual void end_segment(int segment) = 0;
    // Returns this rank's complete gradients of BUCKET, whose parameter several pipeline stages
    // share. The caller overwrites the gradients with their sums over these stages. The compute
    // lane calls this function in the kTie instruction of BUCKET, before kPost reports the
    // gradients as complete.
    [[nodiscard]] virtual std::span<float> tied_gradients(int bucket) = 0;
    // Returns the global L2 norm of the last step's mean gradient before clipping, if it was
    // computed.
    [[nodiscard]] virtual std::optional<double> gradient_norm() const = 0;
    // Returns the overflow if the last step was skipped because its gradients were not finite.
    [[nodiscard]] virtual std::optional<Overflow> overflow() const = 0;
    // Switches to PLAN for the next steps. PLAN may differ only in the placement of chunks and in
    // what hosts exchange, and must outlive the state. Chunks with a new placement move. Every rank
    // calls it, between steps. Blocks.
    virtual void change_plan(const plan::StepPlan& plan) = 0;
    // Sets the witness, which sees every update of an element that this rank writes. If WITNESS is
    // null, there is no witness. WITNESS must outlive the state. REQUIRES: the values are in the
    // host's memory.
    virtual void set_witness(UpdateWitness* witness) = 0;
    // Waits until the last step's updates are done on every rank.
    virtual void settle() = 0;
    // Averages the changes that hosts have made in steps without an exchange. Afterwards all hosts
    // have the same parameters and states. Every rank calls it, between steps. Blocks.
    virtual void meet() = 0;
};

}  // namespace dslaunch::runtime
