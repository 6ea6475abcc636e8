// The compute half of a step: carries out Load, Forward, Recompute and Backward of the plan over a
// segmented model, or the range of it that is a pipeline's stage. Holds what is alive in each micro
// step under way and lets go of it where the plan says. Threads: the compute lane; take_… and put_…
// by the lanes that send and receive, ordered by the plan's waits.
#pragma once

#include <functional>
#include <vector>

#include "graph/segment.h"
#include "graph/split_backward.h"
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
    int first_segment = 0;  // of the model's that the plan's segments begin with
    // Ranks of the world whose mean gradients are that share the positions of each sample. Each has
    // a summand, which the mean divides by their number too: the loss's gradient makes up for it.
    // To the two figures of data parallelism above they are one rank.
    int position_ranks = 1;
};

class SegmentRunner {
  public:
    // The arguments of forward for one micro step of this rank.
    using TakeBatch = std::function<std::vector<c10::IValue>(int64_t step, int64_t micro_step)>;

    // MODEL must outlive the runner. INFO and GROUPS are those of the plan: INFO has the stage's
    // segments alone.
    SegmentRunner(const SegmentedModel& model, const ModelInfo& info,
                  std::vector<RecomputeGroup> groups, TakeBatch take_batch,
                  const SegmentRunnerOptions& options);

    // STEP counts from 0. ROOT_SCALE multiplies the gradient of every micro step's loss (1 /
    // accumulation steps for a mean).
    void begin_step(int64_t step, double root_scale);
    // Takes all micro batches of STEP at once, for who must look into them before the step begins;
    // Load then uses them.
    [[nodiscard]] const std::vector<std::vector<c10::IValue>>& look_ahead(int64_t step);
    // REQUIRES: kLoad, or an instruction of a segment on the compute lane. Throws Error{kInput}
    // when a node fails or the loss does not depend on a parameter, Error{kDiverged} on a loss that
    // is not finite.
    void run(const Instruction& instruction);

    // Between stages. The values behind the last segment, as they are: tensors that want gradients
    // say so. What the stage before has sent, which is owned from here on.
    [[nodiscard]] std::vector<c10::IValue> take_values(int micro_step);
    void put_values(int micro_step, const std::vector<c10::IValue>& values);
    // Gradients of those tensors among them that want some, in their order; undefined: none came.
    [[nodiscard]] std::vector<at::Tensor> take_gradients(int micro_step);
    void put_gradients(int micro_step, const std::vector<at::Tensor>& gradients);

    // The losses of the step's micro steps so far, none where another stage has them. Throws
    // Error{kDiverged} on one that is not finite and was not read before; waits for the device
    // then.
    [[nodiscard]] const std::vector<double>& losses();

  private:
    // What is held of a micro step.
    struct Held {
        std::vector<std::vector<c10::IValue>> inputs;  // values alive before each segment, and
                                                       // behind the last; empty when let go
        std::vector<Boundary> boundaries;  // what came out of each segment, for its backward
        std::vector<std::vector<at::Tensor>> buffers_before;  // of each segment that will be
                                                              // recomputed
        std::vector<WeightHalf> weight_halves;                // of each segment, until they are run
        std::vector<at::Tensor> received;  // leaves among what the stage before has sent
    };
    void load(int64_t micro_step);
    void forward(size_t segment, int64_t micro_step);
    void recompute(size_t segment, int64_t micro_step);
    void backward(size_t segment, int64_t micro_step, bool split);
    void backward_weight(size_t segment, int64_t micro_step);
    void add_loss(double loss);
    void end_forward(size_t segment, Held& held, Boundary& boundary);
    [[nodiscard]] const RecomputeGroup* group_of(size_t segment) const;
    [[nodiscard]] DrawKey draw_key(int64_t micro_step) const;
    Held& begin_micro_step(int64_t micro_step);
    [[nodiscard]] Held& held(int64_t micro_step) { return held_[static_cast<size_t>(micro_step)]; }
    [[nodiscard]] size_t count() const { return info_.segments.size(); }
    // Of the model, for a segment of the plan.
    [[nodiscard]] size_t in_model(size_t segment) const {
        return static_cast<size_t>(options_.first_segment) + segment;
    }
    [[nodiscard]] bool ends_model(size_t segment) const {
        return in_model(segment) + 1 == model_.segments().size();
    }

    const SegmentedModel& model_;
    const ModelInfo& info_;
    std::vector<RecomputeGroup> groups_;
    TakeBatch take_batch_;
    SegmentRunnerOptions options_;
    int64_t step_ = 0;
    double root_scale_ = 1;
    size_t last_backward_ = 0;  // segment whose backward ends a micro step; none has one: count()
    std::vector<Held> held_;    // by micro step
    std::vector<std::vector<c10::IValue>> ahead_;  // micro batches taken by look_ahead, by micro
                                                   // step
    std::vector<double> losses_;
    std::vector<at::Tensor> unread_losses_;  // of the micro steps after those in losses_
};

}  // namespace dslaunch
