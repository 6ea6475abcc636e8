// Trained parameters that forward writes in place: taken out of the graph where their new values
// depend on parameters, buffers and constants alone and are read after the write, so that a rank
// can write them before the step. Used by written_state.h. No shared state.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Fills in LoweredGraph::writes and in_place for PARAMETERS, by index in the model, which are
// trained and which the graph writes. The graph then reads the hoisted ones as if they were
// written. Throws Error{kInput} naming one of which a trace does not say whether it is read with a
// gradient.
// DRAWS tells nodes that draw random numbers (lower/dropout_seeds.h).
using TellsDraw = bool (*)(const torch::jit::Node& node);
void hoist_writes(const Model& model, LoweredGraph& lowered, const std::vector<int>& parameters,
                  TellsDraw draws);

// True if forward moves one of INPUTS, inputs of LOWERED's graph by index, by what it computes from
// the batch or by random numbers.
[[nodiscard]] bool moves_by_batch(const LoweredGraph& lowered, const std::vector<size_t>& inputs,
                                  TellsDraw draws);

}  // namespace dslaunch::graph
