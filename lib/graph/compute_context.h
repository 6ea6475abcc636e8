// The thread state that segments need: grad mode, no autocast, plain execution, threads for
// operators. All of it is thread-local in LibTorch, so every thread that runs a segment holds one
// of these.
#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

namespace dslaunch {

class ComputeContext {
  public:
    explicit ComputeContext(bool gradients) : grad_mode_(gradients) {}
    ComputeContext(const ComputeContext&) = delete;
    ComputeContext& operator=(const ComputeContext&) = delete;

  private:
    torch::jit::GraphOptimizerEnabledGuard plain_execution_{false};
    c10::AutoGradMode grad_mode_;
};

}  // namespace dslaunch
