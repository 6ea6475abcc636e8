// The held-out loss: the model in eval mode, rank 0's buffers, every held-out sample once over all
// ranks. Compute lane.
#pragma once

#include <functional>
#include <optional>

#include "config/run_config.h"
#include "graph/segment.h"
#include "runtime/data/data_source.h"
#include "runtime/data/eval_plan.h"
#include "runtime/model_buffers.h"
#include "runtime/parameter_state.h"
#include "runtime/trainer.h"

namespace dslaunch {

class Evaluator {
  public:
    // LEAVES: asked by every rank before each batch, the same answer on all: the evaluation ends
    // there. Empty: never. All references must outlive this.
    Evaluator(Model& model, const RunConfig& config, DataSource held_out, ModelBuffers& buffers,
              ParameterState& state, int rank, std::function<bool()> leaves = {});

    // This rank's share. Every rank calls it: parameters that lie in shards are brought together
    // segment by segment. The model is in train mode again afterwards, its buffers as they were.
    [[nodiscard]] EvalShare run();

  private:
    [[nodiscard]] Boundary forward(const EvalBatch& batch,
                                   const std::vector<c10::IValue>& arguments) const;

    Model& model_;
    const RunConfig& config_;
    DataSource held_out_;
    ModelBuffers& buffers_;
    ParameterState& state_;
    int rank_;
    std::function<bool()> leaves_;
    std::optional<SegmentedModel> segmented_;  // made at the first evaluation
};

}  // namespace dslaunch
