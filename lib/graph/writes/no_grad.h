// Handles blocks of a graph that compute without gradients, as code in `with torch.no_grad():`
// does. Used by lower.h and by the other sources of this folder. No shared state.
#pragma once

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Removes blocks `with torch.no_grad():` from GRAPH. Their operators remain and read detached
// tensors, so that the graph may be cut between these operators. A block that reads containers of
// tensors is not changed.
void detach_without_gradients(Graph& graph);

// Returns VALUE detached, by nodes that are added before the node BEFORE. VALUE may be a tensor, or
// a list that a node builds from tensors. Returns null for any other value.
[[nodiscard]] Value* detached(Value* value, Node* before);

}  // namespace dslaunch::graph
