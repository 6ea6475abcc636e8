// A scope whose end restores what a model's forward writes: the buffers of BatchNorm and similar
// layers, and parameters that its graph writes in place. Used by the thread that runs trial passes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

class KeptBuffers {
  public:
    // MODEL must outlive this. LOWERED is its graph.
    KeptBuffers(const Model& model, const LoweredGraph& lowered) {
        for (const ModelBuffer& buffer : model.buffers()) keep(buffer.tensor);
        for (const WriteInPlace& write : lowered.in_place)
            keep(model.parameters()[write.parameter].tensor.detach());
    }
    KeptBuffers(const KeptBuffers&) = delete;
    KeptBuffers& operator=(const KeptBuffers&) = delete;
    ~KeptBuffers() {
        const at::NoGradGuard no_grad;
        for (size_t i = 0; i < before_.size(); ++i) kept_[i].copy_(before_[i]);
    }

  private:
    void keep(const at::Tensor& tensor) {
        kept_.push_back(tensor);
        before_.push_back(tensor.detach().clone());
    }

    std::vector<at::Tensor> kept_;
    std::vector<at::Tensor> before_;
};

}  // namespace dslaunch::graph
