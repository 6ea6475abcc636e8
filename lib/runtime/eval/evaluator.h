// Computes the held-out loss: runs the model in eval mode, with rank 0's buffers, on each held-out
// sample once. The ranks divide the samples among themselves. Thread: the compute lane.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "config/run/run_config.h"
#include "graph/lower/reward_means.h"
#include "graph/segment/segmented_model.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/compute/parameter_writer.h"
#include "runtime/compute/stage_link.h"
#include "runtime/data/data_source.h"
#include "runtime/data/eval_plan.h"
#include "runtime/state/readable_state.h"

namespace dslaunch::runtime {

// The stages of a pipeline. Batches pass from part to part as in training.
struct EvalStages {
    const StageLink* link = nullptr;  // null: no pipeline
    std::vector<int> stage_of_part;   // one per part of the model
    // For each parameter and buffer of the model, the stages that use it in training. The list is
    // empty if no segment reads the parameter or buffer.
    std::vector<std::vector<int>> stages_of_parameter;
    std::vector<std::vector<int>> stages_of_buffer;
    int64_t segments = 0;  // number of segments, for SegmentedModel::make()
};

// This rank's share of an evaluation: the sum of the losses, and its divisor (samples, or tokens
// that count).
struct EvalShare {
    double loss_sum = 0;
    double weight = 0;
    double samples = 0;
    graph::RewardMeans rewards;  // sums over the samples, for a preference loss
    bool cut_short = false;      // true if all ranks stopped early, to save and end
};

// The objects and settings of an evaluator. Pointers must outlive it.
struct EvaluatorParts {
    graph::Model* model = nullptr;
    graph::LowerOptions lowering;  // for MODEL in eval mode
    const config::RunConfig* config = nullptr;
    ModelBuffers* buffers = nullptr;
    ReadableState* state = nullptr;
    // Stores the values that forward assigns to trained parameters. If it is null, they are not
    // stored. is_written_here is the argument IS_HERE of write_parameters().
    WritableState* writable = nullptr;
    std::function<bool(int parameter)> is_written_here = {};
    c10::Device device = c10::kCPU;  // device of STATE's parameters, and of buffers
    int rank = 0;                    // rank among the ranks that have rows of their own
    bool counts = true;              // true on one of the ranks that share rows
    // Returns true if the evaluation must end early. Every rank calls it before each batch and must
    // get the same answer. If it is empty, no evaluation ends early.
    std::function<bool()> leaves = {};
    EvalStages stages = {};
    // The model's graph in eval mode. If it is null, the first evaluation makes the graph. It must
    // be given if each rank has only its share of the parameters, because the model cannot be
    // lowered then.
    std::unique_ptr<graph::SegmentedModel> segmented = nullptr;
};

// Evaluates; see the top of this file.
class Evaluator {
  public:
    // The objects that PARTS points to must outlive this object.
    Evaluator(EvaluatorParts parts, DataSource held_out)
        : parts_(std::move(parts)), held_out_(std::move(held_out)) {}

    // Returns this rank's share; in a pipeline it is empty except on the stage that has the loss.
    // Every rank calls it: sharded parameters are gathered segment by segment. Afterwards the model
    // is in train mode again, with the buffers as they were; trained parameters keep the values
    // that forward assigned. If TELL is not empty, calls it before each batch with the fraction of
    // the batches that are done. Throws Error{kConfig} if the model in eval mode cannot be divided
    // among the stages.
    [[nodiscard]] EvalShare run(const std::function<void(double share)>& tell = {});
    // Sets the number of updates done, as SegmentRunner::set_updates() does.
    void set_updates(int64_t updates) { updates_ = updates; }
    // Makes the graph that run() uses, if it does not exist yet. Throws the errors of run() and of
    // lowering.
    const graph::SegmentedModel& prepare();
    // Sets the samples to evaluate from now on. REQUIRES: they have the same form as the earlier
    // samples.
    void use(DataSource held_out) { held_out_ = std::move(held_out); }

  private:
    [[nodiscard]] std::unique_ptr<graph::SegmentedModel> lower_model() const;
    // Neighbouring segments that the same stage runs.
    struct Stretch {
        int stage = 0;
        size_t begin = 0;
        size_t end = 0;
    };
    void deal_to_stages();
    [[nodiscard]] bool has_all(const graph::Segment& segment, int stage) const;
    [[nodiscard]] int own_stage() const {
        return parts_.stages.link == nullptr ? 0 : parts_.stages.link->stage();
    }
    [[nodiscard]] bool has_first() const { return stretches_.front().stage == own_stage(); }
    [[nodiscard]] bool has_last() const { return stretches_.back().stage == own_stage(); }
    [[nodiscard]] std::vector<c10::IValue> arguments_of(const EvalBatch& batch) const;
    [[nodiscard]] graph::Boundary forward(const EvalBatch& batch,
                                          const std::vector<c10::IValue>& arguments) const;
    [[nodiscard]] graph::Boundary run_stretch(const Stretch& stretch, const EvalBatch& batch,
                                              std::vector<c10::IValue> values) const;

    EvaluatorParts parts_;
    DataSource held_out_;
    bool prepared_ = false;
    int64_t updates_ = -1;
    std::vector<Stretch> stretches_;  // stretches of all stages, in the model's order
};

}  // namespace dslaunch::runtime
