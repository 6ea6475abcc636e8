// Parameters that forward() overwrites before it reads them: their new values are computed apart
// from the graph, between steps. Data path: lower.h -> [here] -> segment/new_values.h. No shared
// state.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Returns true for nodes that draw random numbers (draws/dropout_seeds.h).
using TellsDraw = bool (*)(const Node& node);

// Fills in LoweredGraph::writes and in_place. PARAMETERS are the trained parameters that the graph
// writes, as indices in the model. The graph then reads the parameters in `writes` as if they had
// been written already. Throws Error{kInput}, naming a parameter, if a trace does not show whether
// a read of this parameter needs a gradient.
void hoist_writes(const Model& model, LoweredGraph& lowered, const std::vector<int>& parameters,
                  TellsDraw draws);

// Returns true if forward changes one of INPUTS by a value that it computes from the batch or draws
// at random. INPUTS: indices of inputs of LOWERED's graph.
[[nodiscard]] bool moves_by_batch(const LoweredGraph& lowered, const std::vector<size_t>& inputs,
                                  TellsDraw draws);

}  // namespace dslaunch::graph
