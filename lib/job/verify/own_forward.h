// One batch through a model's own forward, as LibTorch's interpreter runs it: without the lowered
// graph. It says whether that graph is what the model says. Feeds whole_reference.h. Thread: one.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "config/run/run_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::job {

// Calls MODEL's forward in its present mode on BATCH, whose values are LOWERED's arguments, and
// returns LOSS of what it returns, with autograd graph. Throws Error{kInput} where forward cannot
// be called like that, and what LibTorch throws. REQUIRES: LOSS is no loss of preferences.
[[nodiscard]] at::Tensor own_loss(graph::Model& model, const graph::LoweredGraph& lowered,
                                  const config::LossConfig& loss,
                                  const std::vector<c10::IValue>& batch);

// Brings the parameters and buffers of MODEL, as load_as_torch() has loaded it, to fp64. What
// shares memory goes on to.
void widen(graph::Model& model);

}  // namespace dslaunch::job
