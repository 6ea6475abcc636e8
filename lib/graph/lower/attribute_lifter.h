// Turns the attributes of the module that a graph reads into inputs of the graph. A step of
// lower.h. No shared state.
#pragma once

#include <functional>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Replaces every attribute of the module that the graph reads. Parameters and buffers become
// inputs, one for each tensor object; lists and tuples of them become nodes that build them from
// these inputs; everything else becomes a constant. Attributes that the graph writes become states.
// SIMPLIFY propagates constants: it is called before the writes are converted, so that an attribute
// does not become a state if only a branch that is never taken writes it. If some nodes still need
// the module object (interface calls), it stays input 0.
void lift_attributes(Model& model, LoweredGraph& lowered, const std::function<void()>& simplify);

// Removes inputs for parameters, buffers and the module that no node reads.
void drop_unused_inputs(LoweredGraph& lowered);

}  // namespace dslaunch::graph
