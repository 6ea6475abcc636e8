// A model's buffers over the ranks: each rank's own while training, rank 0's where one set must be
// chosen. Compute lane.
#pragma once

#include <span>
#include <vector>

#include "graph/archive/model.h"
#include "runtime/comm/collectives.h"

namespace dslaunch::runtime {

class ModelBuffers {
  public:
    // Both must outlive this.
    ModelBuffers(const graph::Model& model, Collectives& collectives)
        : model_(model), collectives_(collectives) {}

    // Rank 0's values to all ranks. Nothing to do without buffers or in a world of one.
    void broadcast();
    // Whether any buffer is a floating-point one, which training may move differently on each rank.
    [[nodiscard]] bool drift() const;

    // In a pipeline, by all ranks of the JOB: a buffer that stages read becomes on the ranks of
    // those that do not what it is on the first rank of the first one that does. STAGES_OF: of each
    // buffer the stages that read it.
    void bring_from_stages(Collectives& job, int own_stage,
                           std::span<const std::vector<int>> stages_of);

    [[nodiscard]] std::vector<at::Tensor> copy() const;
    void restore(const std::vector<at::Tensor>& values);

  private:
    const graph::Model& model_;
    Collectives& collectives_;
};

}  // namespace dslaunch::runtime
