// The held-out loss: the model in eval mode, rank 0's buffers, every held-out sample once over all
// ranks. Compute lane.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "config/run/run_config.h"
#include "graph/segment/segment.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/data/data_source.h"
#include "runtime/data/eval_plan.h"
#include "runtime/state/parameter_state.h"
#include "runtime/train/trainer.h"

namespace dslaunch::runtime {

// In a pipeline: batches go from part to part as they do in training.
struct EvalStages {
    const StageLink* link = nullptr;  // null: no pipeline
    std::vector<int> stage_of_part;   // of the model's parts
    // Of the model: the stages that train with it, none: no segment reads it.
    std::vector<std::vector<int>> stages_of_parameter;
    std::vector<std::vector<int>> stages_of_buffer;
    int64_t segments = 0;  // as SegmentedModel::make
};

class Evaluator {
  public:
    // RANK: among those that have rows of their own. LEAVES: asked by every rank before each batch,
    // the same answer on all: the evaluation ends there. Empty: never. All references must outlive
    // this. MADE: MODEL's graph in eval mode where it cannot be lowered any more, for its
    // parameters are shares; else null.
    Evaluator(graph::Model& model, const config::RunConfig& config, DataSource held_out,
              ModelBuffers& buffers, ParameterState& state, int rank,
              std::function<bool()> leaves = {}, EvalStages stages = {},
              std::unique_ptr<graph::SegmentedModel> made = nullptr);

    // This rank's share, in a pipeline nothing but in the stage that has the loss. Every rank calls
    // it: parameters that lie in shards are brought together segment by segment. The model is in
    // train mode again afterwards, its buffers as they were. Throws Error{kConfig} where the model
    // in eval mode cannot be dealt to the stages.
    [[nodiscard]] EvalShare run();

  private:
    [[nodiscard]] std::unique_ptr<graph::SegmentedModel> lower_for(
        at::ScalarType compute_dtype) const;
    void prepare(at::ScalarType compute_dtype);
    // Neighbouring segments that one stage runs.
    struct Stretch {
        int stage = 0;
        size_t begin = 0;
        size_t end = 0;
    };
    void deal_to_stages();
    [[nodiscard]] bool has_all(const graph::Segment& segment, int stage) const;
    [[nodiscard]] int own_stage() const {
        return stages_.link == nullptr ? 0 : stages_.link->stage();
    }
    [[nodiscard]] bool has_first() const { return stretches_.front().stage == own_stage(); }
    [[nodiscard]] bool has_last() const { return stretches_.back().stage == own_stage(); }
    [[nodiscard]] std::vector<c10::IValue> arguments_of(const EvalBatch& batch) const;
    [[nodiscard]] graph::Boundary forward(const EvalBatch& batch,
                                          const std::vector<c10::IValue>& arguments) const;
    [[nodiscard]] graph::Boundary run_stretch(const Stretch& stretch, const EvalBatch& batch,
                                              std::vector<c10::IValue> values) const;

    graph::Model& model_;
    const config::RunConfig& config_;
    DataSource held_out_;
    ModelBuffers& buffers_;
    ParameterState& state_;
    int rank_;
    std::function<bool()> leaves_;
    EvalStages stages_;
    std::unique_ptr<graph::SegmentedModel> segmented_;  // made at the first evaluation, or before
    bool prepared_ = false;
    std::vector<Stretch> stretches_;  // of all stages, in the model's order
};

}  // namespace dslaunch::runtime
