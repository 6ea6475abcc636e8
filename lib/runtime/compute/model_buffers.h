// A model's buffers on all ranks. While training, each rank changes its own buffers. If all ranks
// must use the same values, they use rank 0's. Thread: the compute lane.
#pragma once

#include <span>
#include <vector>

#include "graph/archive/model.h"
#include "runtime/comm/collectives.h"

namespace dslaunch::runtime {

// The buffers of a model, such as BatchNorm's averages, on all ranks that have them.
class ModelBuffers {
  public:
    // MODEL and COLLECTIVES must outlive this object.
    ModelBuffers(const graph::Model& model, Collectives& collectives)
        : model_(model), collectives_(collectives) {}

    // Copies rank 0's values to all ranks. Does nothing if there are no buffers or only one rank.
    void broadcast();
    // Sets every floating-point buffer to its mean over the ranks, added in rank order in fp64.
    void average();
    // Returns true if any buffer is floating-point: then training may change it differently on each
    // rank.
    [[nodiscard]] bool drift() const;

    // Copies each buffer that only some stages read to the ranks of the other stages. It is copied
    // from the first rank of the first stage that reads it. In a pipeline, all ranks of JOB call
    // it. STAGES_OF has, for each buffer, the stages that read it.
    void bring_from_stages(Collectives& job, int own_stage,
                           std::span<const std::vector<int>> stages_of);

    // copy() returns new tensors with the buffers' values, and restore() writes VALUES back.
    [[nodiscard]] std::vector<at::Tensor> copy() const;
    void restore(const std::vector<at::Tensor>& values);

  private:
    const graph::Model& model_;
    Collectives& collectives_;
};

}  // namespace dslaunch::runtime
