// A scope whose end restores a model's buffers: trial passes change those of BatchNorm and similar
// layers. Used by the thread that runs the passes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "graph/archive/model.h"

namespace dslaunch::graph {

class KeptBuffers {
  public:
    // MODEL must outlive this.
    explicit KeptBuffers(const Model& model) : model_(model) {
        for (const ModelBuffer& buffer : model.buffers()) before_.push_back(buffer.tensor.clone());
    }
    KeptBuffers(const KeptBuffers&) = delete;
    KeptBuffers& operator=(const KeptBuffers&) = delete;
    ~KeptBuffers() {
        const at::NoGradGuard no_grad;
        for (size_t b = 0; b < before_.size(); ++b) model_.buffers()[b].tensor.copy_(before_[b]);
    }

  private:
    const Model& model_;
    std::vector<at::Tensor> before_;
};

}  // namespace dslaunch::graph
