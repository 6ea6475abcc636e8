// The values that a model's forward gives its trained parameters before it reads them
// (lowered/lowered_graph.h). Run between steps by the thread that calls it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Returns the new values of WRITES.written, computed in fp32 from PARAMETERS, the values of
// WRITES.parameters, and MODEL's buffers, which stay as they are. Throws Error{kInput} if a node
// fails.
[[nodiscard]] std::vector<at::Tensor> new_values(const Model& model, const ParameterWrites& writes,
                                                 const std::vector<at::Tensor>& parameters);

// Returns true if writing twice gives what writing once does, but for rounding, from MODEL's values
// and from others: then it does not matter how often a step runs forward. In fp64; in fp32 where
// the graph names types itself.
[[nodiscard]] bool is_projection(const Model& model, const ParameterWrites& writes);

}  // namespace dslaunch::graph
