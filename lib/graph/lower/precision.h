// Half precision: the casts that a graph needs to run with 16-bit parameters under autocast
// (compute_context.h). Used by lower.h. No shared state.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Inserts casts before operators of GRAPH that fail under autocast: autocast does not cast their
// inputs, and their kernels cannot mix 16-bit and fp32 tensors or do not support 16-bit tensors.
// The table in precision.cpp lists these operators. Does not look into interface calls. DTYPE is
// kBFloat16 or kHalf.
void insert_precision_casts(Graph& graph, at::ScalarType dtype);

// Adds a node that converts VALUE to fp32, at the graph's insert point, and returns its output. A
// value that is not 16-bit is not changed.
[[nodiscard]] Value* in_full_precision(Value* value);

// Returns the text " in bfloat16" with advice, for the message about an operator that failed.
// Returns an empty text for kFloat.
[[nodiscard]] std::string precision_advice(at::ScalarType dtype);

}  // namespace dslaunch::graph
