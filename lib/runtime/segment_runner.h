// The compute half of a step: carries out Load, Forward, Recompute and Backward of the plan over a
// segmented model. Holds what is alive in a micro step and lets go of it where the plan says. Used
// by the compute lane only.
#pragma once

#include <functional>
#include <vector>

#include "graph/segment.h"
#include "plan/step_plan.h"

namespace dslaunch {

struct SegmentRunnerOptions {
    uint64_t seed = 1234;
    int64_t accumulation_steps = 1;
    int data_parallel_rank = 0;
    int data_parallel_size = 1;
    c10::Device device = c10::kCPU;  // batches are copied there
    // Losses stay tensors until losses() is asked for, so that a device is not waited for in each
    // micro step. One that is not finite is then found after the step.
    bool read_losses_late = false;
    // A loss that is not finite ends the run; else the gradients that it makes skip the step.
    bool stop_on_nonfinite_loss = true;
};

class SegmentRunner {
  public:
    // The arguments of forward for one micro step of this rank.
    using TakeBatch = std::function<std::vector<c10::IValue>(int64_t step, int64_t micro_step)>;

    // MODEL must outlive the runner. INFO and GROUPS are those of the plan.
    SegmentRunner(const SegmentedModel& model, const ModelInfo& info,
                  std::vector<RecomputeGroup> groups, TakeBatch take_batch,
                  const SegmentRunnerOptions& options);

    // STEP counts from 0. ROOT_SCALE multiplies the gradient of every micro step's loss (1 /
    // accumulation steps for a mean).
    void begin_step(int64_t step, double root_scale);
    // Takes all micro batches of STEP at once, for who must look into them before the step begins;
    // Load then uses them.
    [[nodiscard]] const std::vector<std::vector<c10::IValue>>& look_ahead(int64_t step);
    // REQUIRES: one of kLoad, kForward, kRecompute, kBackward. Throws Error{kInput} when a node
    // fails or the loss does not depend on a parameter, Error{kDiverged} on a loss that is not
    // finite.
    void run(const Instruction& instruction);

    // The losses of the step's micro steps so far. Throws Error{kDiverged} on one that is not
    // finite and was not read before; waits for the device then.
    [[nodiscard]] const std::vector<double>& losses();

  private:
    void load(int64_t micro_step);
    void forward(size_t segment);
    void recompute(size_t segment);
    void backward(size_t segment);
    void add_loss(double loss);
    [[nodiscard]] const RecomputeGroup* group_of(size_t segment) const;
    [[nodiscard]] DrawKey draw_key() const;

    const SegmentedModel& model_;
    const ModelInfo& info_;
    std::vector<RecomputeGroup> groups_;
    TakeBatch take_batch_;
    SegmentRunnerOptions options_;
    int64_t step_ = 0;
    int64_t micro_step_ = 0;
    double root_scale_ = 1;
    std::vector<std::vector<c10::IValue>> inputs_;  // values alive before each segment, empty when
                                                    // let go
    std::vector<Boundary> boundaries_;  // what came out of each segment, for its backward
    std::vector<std::vector<at::Tensor>> buffers_before_;  // of each segment that will be
                                                           // recomputed
    std::vector<std::vector<c10::IValue>> ahead_;  // micro batches taken by look_ahead, by micro
                                                   // step
    std::vector<double> losses_;
    std::vector<at::Tensor> unread_losses_;  // of the micro steps after those in losses_
};

}  // namespace dslaunch
