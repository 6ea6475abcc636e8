// A model's buffers over the ranks: each rank's own while training, rank 0's if one set must be
// chosen. Thread: the compute lane.
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

    // Copies rank 0's values to all ranks. Does nothing without buffers or in a world of one.
    void broadcast();
    // Gives every floating-point buffer the mean over the ranks, added up in rank order in fp64.
    void average();
    // Returns true if any buffer is floating-point: training may move it differently on each rank.
    [[nodiscard]] bool drift() const;

    // Copies a buffer that only some stages read to the ranks of the others, from the first rank of
    // the first stage that reads it. All ranks of the JOB in a pipeline call it. STAGES_OF has for
    // each buffer the stages that read it.
    void bring_from_stages(Collectives& job, int own_stage,
                           std::span<const std::vector<int>> stages_of);

    [[nodiscard]] std::vector<at::Tensor> copy() const;
    void restore(const std::vector<at::Tensor>& values);

  private:
    const graph::Model& model_;
    Collectives& collectives_;
};

}  // namespace dslaunch::runtime
