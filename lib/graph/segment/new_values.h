// The values that a model's forward assigns to its trained parameters before it reads them
// (lowered/lowered_graph.h). They are computed between steps, on the calling thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Returns the new values of WRITES.written, computed in fp32. PARAMETERS: the current values of
// WRITES.parameters. MODEL's buffers are read, and do not change. Throws Error{kInput} if a node
// fails.
[[nodiscard]] std::vector<at::Tensor> new_values(const Model& model, const ParameterWrites& writes,
                                                 const std::vector<at::Tensor>& parameters);

// Returns true if writing twice gives the same values as writing once, except for rounding. Tests
// this with MODEL's values and with different values. If it returns true, a step may run forward
// any number of times. Computes in fp64, and in fp32 if the graph names types itself.
[[nodiscard]] bool is_projection(const Model& model, const ParameterWrites& writes);

}  // namespace dslaunch::graph
