// Steps of lower.h that concern the module object: its attributes become graph inputs or constants.
#pragma once

#include <functional>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Replaces every attribute of the module that the graph reads: parameters and buffers by inputs
// (one per tensor, by identity), lists and tuples of them by constructs over these inputs,
// everything else by constants; attributes that the graph writes become states. SIMPLIFY propagates
// constants in between, so that an attribute that only an untaken branch writes is no state. Nodes
// that still need the module object (interface calls) keep it as input 0.
void lift_attributes(Model& model, LoweredGraph& lowered, const std::function<void()>& simplify);

// Removes parameter, buffer and module inputs that nothing reads.
void drop_unused_inputs(LoweredGraph& lowered);

}  // namespace dslaunch::graph
