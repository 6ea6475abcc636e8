// The held-out loss: the model in eval mode, rank 0's buffers, every held-out sample once over all
// ranks. Thread: the compute lane.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "config/run/run_config.h"
#include "graph/lower/reward_means.h"
#include "graph/segment/segment.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/compute/parameter_writer.h"
#include "runtime/compute/stage_link.h"
#include "runtime/data/data_source.h"
#include "runtime/data/eval_plan.h"
#include "runtime/state/readable_state.h"

namespace dslaunch::runtime {

// The stages of a pipeline. Batches go from part to part as they do in training.
struct EvalStages {
    const StageLink* link = nullptr;  // null: no pipeline
    std::vector<int> stage_of_part;   // one per part of the model
    // The stages that train with each of the model's parameters and buffers, none if no segment
    // reads it.
    std::vector<std::vector<int>> stages_of_parameter;
    std::vector<std::vector<int>> stages_of_buffer;
    int64_t segments = 0;  // as for SegmentedModel::make
};

// This rank's share of an evaluation: the sum of the losses, and its divisor (samples, or tokens
// that count).
struct EvalShare {
    double loss_sum = 0;
    double weight = 0;
    double samples = 0;
    graph::RewardMeans rewards;  // sums over the samples, of a loss of preferences
    bool cut_short = false;      // true if all ranks have left it to save and end
};

struct EvaluatorParts {
    graph::Model* model = nullptr;
    graph::LowerOptions lowering;  // of MODEL in eval mode
    const config::RunConfig* config = nullptr;
    ModelBuffers* buffers = nullptr;
    ReadableState* state = nullptr;
    // Takes what forward writes into trained parameters; null: nothing is written.
    // IS_WRITTEN_HERE as for write_parameters().
    WritableState* writable = nullptr;
    std::function<bool(int parameter)> is_written_here = {};
    c10::Device device = c10::kCPU;  // where STATE holds parameters, and buffers are
    int rank = 0;                    // rank among the ranks that have rows of their own
    bool counts = true;              // true on one of the ranks that work on the same rows together
    // Ends the evaluation if it returns true. Every rank asks it before each batch and gets the
    // same answer. Empty means never.
    std::function<bool()> leaves = {};
    EvalStages stages = {};
    // MODEL's graph in eval mode, given if the model can no longer be lowered because its
    // parameters are shares. Null means that the first evaluation makes it.
    std::unique_ptr<graph::SegmentedModel> segmented = nullptr;
};

class Evaluator {
  public:
    // The objects that PARTS points to must outlive this.
    Evaluator(EvaluatorParts parts, DataSource held_out)
        : parts_(std::move(parts)), held_out_(std::move(held_out)) {}

    // Returns this rank's share, which in a pipeline is empty except in the stage that has the
    // loss. Every rank calls it: parameters that lie in shards are brought together segment by
    // segment. The model is in train mode again afterwards, its buffers as they were; trained
    // parameters keep what forward writes. Throws Error{kConfig} if the model in eval mode cannot
    // be dealt to the stages. TELL, unless empty, gets the share of batches done before each one.
    [[nodiscard]] EvalShare run(const std::function<void(double share)>& tell = {});
    // Makes the graph that run() uses, unless it is there. Throws as run() does, and what lowering
    // throws.
    const graph::SegmentedModel& prepare();

  private:
    [[nodiscard]] std::unique_ptr<graph::SegmentedModel> lower_model() const;
    // Neighbouring segments that one stage runs.
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
    std::vector<Stretch> stretches_;  // stretches of all stages, in the model's order
};

}  // namespace dslaunch::runtime
