// The held-out loss: the model in eval mode, rank 0's buffers, every held-out sample once over all
// ranks. Compute lane.
#pragma once

#include <optional>

#include "config/run_config.h"
#include "graph/segment.h"
#include "runtime/data/data_source.h"
#include "runtime/model_buffers.h"
#include "runtime/trainer.h"

namespace dslaunch {

class Evaluator {
  public:
    // All references must outlive this.
    Evaluator(Model& model, const RunConfig& config, DataSource held_out, ModelBuffers& buffers,
              int rank);

    // This rank's share. The model is in train mode again afterwards, its buffers as they were.
    [[nodiscard]] EvalShare run();

  private:
    Model& model_;
    const RunConfig& config_;
    DataSource held_out_;
    ModelBuffers& buffers_;
    int rank_;
    std::optional<SegmentedModel> segmented_;  // made at the first evaluation
};

}  // namespace dslaunch
