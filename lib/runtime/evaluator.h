// The held-out loss: the model in eval mode, rank 0's buffers, every held-out sample once over all
// ranks. Compute lane.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "config/run_config.h"
#include "graph/segment.h"
#include "runtime/data/data_source.h"
#include "runtime/data/eval_plan.h"
#include "runtime/model_buffers.h"
#include "runtime/parameter_state.h"
#include "runtime/trainer.h"

namespace dslaunch {

// In a pipeline: batches go from stage to stage as they do in training.
struct EvalStages {
    const StageLink* link = nullptr;  // null: no pipeline
    // Of the model: the stages that train with it, none: no segment reads it.
    std::vector<std::vector<int>> stages_of_parameter;
    std::vector<std::vector<int>> stages_of_buffer;
    int64_t segments = 0;  // as SegmentedModel::make
};

class Evaluator {
  public:
    // RANK: among those that have rows of their own. LEAVES: asked by every rank before each batch,
    // the same answer on all: the evaluation ends there. Empty: never. All references must outlive
    // this.
    Evaluator(Model& model, const RunConfig& config, DataSource held_out, ModelBuffers& buffers,
              ParameterState& state, int rank, std::function<bool()> leaves = {},
              EvalStages stages = {});

    // This rank's share, in a pipeline nothing but in the last stage. Every rank calls it:
    // parameters that lie in shards are brought together segment by segment. The model is in train
    // mode again afterwards, its buffers as they were. Throws Error{kConfig} where the model in
    // eval mode cannot be dealt to the stages.
    [[nodiscard]] EvalShare run();

  private:
    void prepare(at::ScalarType compute_dtype);
    void deal_to_stages();
    [[nodiscard]] bool has_all(const Segment& segment, int stage) const;
    [[nodiscard]] bool first_stage() const { return begin_ == 0; }
    [[nodiscard]] bool last_stage() const { return end_ == segmented_->segments().size(); }
    [[nodiscard]] std::vector<c10::IValue> arguments_of(const EvalBatch& batch) const;
    [[nodiscard]] Boundary forward(const EvalBatch& batch,
                                   const std::vector<c10::IValue>& arguments) const;

    Model& model_;
    const RunConfig& config_;
    DataSource held_out_;
    ModelBuffers& buffers_;
    ParameterState& state_;
    int rank_;
    std::function<bool()> leaves_;
    EvalStages stages_;
    std::optional<SegmentedModel> segmented_;  // made at the first evaluation
    size_t begin_ = 0;                         // this stage's segments
    size_t end_ = 0;
};

}  // namespace dslaunch
