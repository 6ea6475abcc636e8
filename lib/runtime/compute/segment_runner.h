// The compute half of a step: carries out Load, Forward, Recompute and Backward of the plan over a
// segmented model, or the parts of it that are a pipeline's stage. Holds what is alive in each part
// and micro step under way and lets go of it where the plan says. Threads: the compute lane; take_…
// and put_… by the lanes that send and receive, ordered by the plan's waits.
#pragma once

#include <functional>
#include <vector>

#include "graph/segment/segment.h"
#include "graph/segment/split_backward.h"
#include "plan/step/recompute_groups.h"
#include "plan/step/step_plan.h"

namespace dslaunch::runtime {

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
    plan::StageWork stage_work = {};  // of the plan
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
    SegmentRunner(const graph::SegmentedModel& model, const plan::ModelInfo& info,
                  std::vector<plan::RecomputeGroup> groups, TakeBatch take_batch,
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
    void run(const plan::Instruction& instruction);

    // Between stages: what SEND sends, and what RECEIVE has received. The values behind a part, as
    // they are: tensors that want gradients say so. Those before one, which are owned from here on.
    [[nodiscard]] std::vector<c10::IValue> take_values(const plan::Instruction& send);
    void put_values(const plan::Instruction& receive, const std::vector<c10::IValue>& values);
    // Gradients of those tensors among them that want some, in their order; undefined: none came.
    [[nodiscard]] std::vector<at::Tensor> take_gradients(const plan::Instruction& send);
    void put_gradients(const plan::Instruction& receive, const std::vector<at::Tensor>& gradients);

    // The losses of the step's micro steps so far, none where another stage has them. Throws
    // Error{kDiverged} on one that is not finite and was not read before; waits for the device
    // then.
    [[nodiscard]] const std::vector<double>& losses();

  private:
    // What is held of a part in a micro step. Segments are counted from the part's first.
    struct Held {
        std::vector<std::vector<c10::IValue>> inputs;  // values alive before each segment, and
                                                       // behind the last; empty when let go
        std::vector<graph::Boundary> boundaries;  // what came out of each segment, for its backward
        std::vector<std::vector<at::Tensor>> buffers_before;  // of each segment that will be
                                                              // recomputed
        std::vector<graph::WeightHalf> weight_halves;         // of each segment, until they are run
        std::vector<at::Tensor> received;  // leaves among what the part before has given
    };
    // A segment of the plan in a part and micro step.
    struct Place {
        size_t part;
        size_t segment;  // of the part
        size_t in_plan;  // the same, as the next
        size_t in_model;
        int64_t micro_step;
    };
    void load(const Place& place);
    void forward(const Place& place);
    void recompute(const Place& place);
    void backward(const Place& place, bool split);
    void backward_weight(const Place& place);
    void add_loss(double loss);
    void end_forward(const Place& place, graph::Boundary& boundary);
    void hand_over(const Place& place);
    [[nodiscard]] Place place_of(const plan::Instruction& instruction) const;
    [[nodiscard]] const plan::RecomputeGroup* group_of(size_t segment) const;
    [[nodiscard]] graph::DrawKey draw_key(int64_t micro_step) const;
    Held& begin_part(size_t part, int64_t micro_step);
    [[nodiscard]] Held& held(size_t part, int64_t micro_step) {
        return held_[static_cast<size_t>(micro_step) * parts_.size() + part];
    }
    [[nodiscard]] Held& held(const Place& place) { return held(place.part, place.micro_step); }
    // Segments of a part.
    [[nodiscard]] size_t count(size_t part) const {
        const plan::SegmentRange& range = parts_[part].segments;
        return static_cast<size_t>(range.end - range.begin);
    }
    [[nodiscard]] bool ends_model(const Place& place) const {
        return place.in_model + 1 == model_.segments().size();
    }

    const graph::SegmentedModel& model_;
    const plan::ModelInfo& info_;
    std::vector<plan::RecomputeGroup> groups_;
    TakeBatch take_batch_;
    SegmentRunnerOptions options_;
    int64_t step_ = 0;
    double root_scale_ = 1;
    std::vector<plan::StagePart> parts_;
    // Of each part, the segment whose backward ends its micro step; none has one: their count.
    std::vector<size_t> last_backward_;
    std::vector<Held> held_;                       // by micro step, then part
    std::vector<std::vector<c10::IValue>> ahead_;  // micro batches taken by look_ahead, by micro
                                                   // step
    std::vector<double> losses_;
    std::vector<at::Tensor> unread_losses_;  // of the micro steps after those in losses_
};

}  // namespace dslaunch::runtime
