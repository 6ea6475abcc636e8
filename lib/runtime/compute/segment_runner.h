// The compute half of a step. The runner carries out Load, Forward, Recompute and Backward of the
// plan over a segmented model, or over those parts of it that make up a stage of a pipeline. It
// holds the values that are alive in each part and micro step under way, and releases them when the
// plan says so. Threads: the compute lane; the lanes that send and receive call take_*() and
// put_*(), ordered by the plan's waits.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "graph/lower/reward_means.h"
#include "graph/segment/segmented_model.h"
#include "graph/segment/split_backward.h"
#include "plan/step/recompute_groups.h"
#include "plan/step/step_plan.h"
#include "runtime/compute/step_losses.h"

namespace dslaunch::runtime {

// The settings of a segment runner.
struct SegmentRunnerOptions {
    uint64_t seed = 1234;
    int64_t accumulation_steps = 1;
    int data_parallel_rank = 0;
    int data_parallel_size = 1;
    c10::Device device = c10::kCPU;  // batches are copied to this device
    // True if losses stay tensors until losses() is called, so that no micro step waits for the
    // device. A loss that is not finite is then found after the step.
    bool read_losses_late = false;
    // True if a loss that is not finite ends the run. Otherwise its gradients cause the step to be
    // skipped.
    bool stop_on_nonfinite_loss = true;
    plan::StageWork stage_work = {};  // this stage's work in the plan
    // The number of ranks that share the positions of each sample. The gradient of the loss is the
    // sum over these ranks, but the mean over all ranks also divides by their number. The runner
    // therefore multiplies gradients by this number. data_parallel_rank and data_parallel_size
    // count these ranks as one.
    int position_ranks = 1;
};

// Runs segments; see the top of this file.
class SegmentRunner {
  public:
    // Returns the arguments of forward for one micro step of this rank.
    using TakeBatch = std::function<std::vector<c10::IValue>(int64_t step, int64_t micro_step)>;

    // MODEL must outlive the runner. INFO and GROUPS are the same as for the plan; in a pipeline,
    // INFO has only the segments of this stage.
    SegmentRunner(const graph::SegmentedModel& model, const plan::ModelInfo& info,
                  std::vector<plan::RecomputeGroup> groups, TakeBatch take_batch,
                  const SegmentRunnerOptions& options);

    // Begins STEP, which counts from 0. ROOT_SCALE multiplies the gradient of every micro step's
    // loss (1 / accumulation steps for a mean). EMPTY marks the micro steps in which no target
    // counts: their loss is 0. If EMPTY is empty, every micro step has targets that count.
    void begin_step(int64_t step, double root_scale, std::vector<char> empty = {});
    // Sets the number of completed updates, on which the compression of the model depends. The
    // number -1, which applies before the first call, stands for the end of training, when all
    // compression is fully on.
    void set_updates(int64_t updates) { updates_ = updates; }
    // Loads all micro batches of STEP at once, for callers that read them before the step begins.
    // Load then uses them.
    [[nodiscard]] const std::vector<std::vector<c10::IValue>>& look_ahead(int64_t step);
    // Returns the rule that counts targets; null if it is not known which targets of a batch count.
    [[nodiscard]] const graph::TargetCount* targets() const {
        return model_.lowered().targets.get();
    }
    // Returns the settings that were given.
    [[nodiscard]] const SegmentRunnerOptions& options() const { return options_; }
    // Runs one instruction. REQUIRES: kLoad, or an instruction of a segment on the compute lane.
    // Throws Error{kInput} if a node fails or the loss does not depend on a parameter, and
    // Error{kDiverged} for a loss that is not finite.
    void run(const plan::Instruction& instruction);

    // take_values() returns the live values after a part, which SEND sends. Each tensor still says
    // whether it needs gradients. put_values() stores the live values before a part, which RECEIVE
    // has received, and owns them from then on.
    [[nodiscard]] std::vector<c10::IValue> take_values(const plan::Instruction& send);
    void put_values(const plan::Instruction& receive, const std::vector<c10::IValue>& values);
    // Returns one gradient for each tensor that was sent and needs one, in the order of the
    // tensors. A gradient is undefined if its tensor got none.
    [[nodiscard]] std::vector<at::Tensor> take_gradients(const plan::Instruction& send);
    void put_gradients(const plan::Instruction& receive, const std::vector<at::Tensor>& gradients);

    // Returns the losses of the step's micro steps so far; empty if another stage has them. May
    // have to wait for the device, to read losses that are still there. Throws Error{kDiverged} if
    // one of these losses is not finite.
    [[nodiscard]] const std::vector<double>& losses() { return losses_.values(); }
    // Returns the mean rewards over the micro steps so far, which all have the same weight; nullopt
    // if the model has no rewards, or another stage has them. May wait for the device.
    [[nodiscard]] std::optional<graph::RewardMeans> rewards() const { return losses_.rewards(); }

  private:
    // The values that are kept for a part in a micro step. Segments are counted from the part's
    // first.
    struct Held {
        // The values alive before each segment and after the last one; empty once released.
        std::vector<std::vector<c10::IValue>> inputs;
        std::vector<graph::Boundary> boundaries;  // each segment's result, for its backward
        // Copies of the buffers of each segment that will be recomputed.
        std::vector<std::vector<at::Tensor>> buffers_before;
        std::vector<graph::WeightHalf> weight_halves;  // one per segment, kept until it is run
        std::vector<at::Tensor> received;  // leaves among the values from the previous part
    };
    // The place of a segment: in the plan, in the model, in its part, and in a micro step.
    struct Place {
        size_t part;
        size_t segment;  // index in the part
        size_t in_plan;  // index in the plan
        size_t in_model;
        int64_t micro_step;
    };
    void load(const Place& place);
    void forward(const Place& place);
    void recompute(const Place& place);
    void backward(const Place& place, bool split);
    void backward_weight(const Place& place);
    void end_forward(const Place& place, graph::Boundary& boundary);
    void hand_over(const Place& place);
    [[nodiscard]] Place place_of(const plan::Instruction& instruction) const;
    [[nodiscard]] const plan::RecomputeGroup* group_of(size_t segment) const;
    [[nodiscard]] graph::DrawKey draw_key(int64_t micro_step) const;
    Held& begin_part(size_t part, int64_t micro_step);
    [[nodiscard]] Held& held(size_t part, int64_t micro_step) {
        return held_[micro_step * parts_.size() + part];
    }
    [[nodiscard]] Held& held(const Place& place) { return held(place.part, place.micro_step); }
    // Returns the number of segments in a part.
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
    StepLosses losses_;
    int64_t step_ = 0;
    int64_t updates_ = -1;
    double root_scale_ = 1;
    std::vector<plan::StagePart> parts_;
    // For each part, the segment whose backward ends the part's micro step. If no segment of the
    // part has a backward, the entry is the number of segments in the part.
    std::vector<size_t> last_backward_;
    std::vector<Held> held_;  // by micro step, then part
    // The micro batches that look_ahead() loaded for step ahead_step_, one per micro step.
    int64_t ahead_step_ = -1;
    std::vector<std::vector<c10::IValue>> ahead_;
};

}  // namespace dslaunch::runtime
