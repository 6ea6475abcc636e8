// Changes a graph that writes in place to parameters, constants or arguments, so that its writes
// have the right effect on several ranks, in a recompute and in a trial pass. Used together with
// lower.h. No shared state.
#pragma once

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/writes/hoisted_writes.h"

namespace dslaunch::graph {

// Changes LOWERED and MODEL so that the graph writes only buffers and the parameters of
// LoweredGraph::in_place:
// - an argument or a state is copied before it is written;
// - a constant, or a parameter that is not trained, becomes a buffer of MODEL;
// - a trained parameter whose new values depend only on parameters, buffers and constants goes to
//   LoweredGraph::writes, and the graph reads it as if it had been written already; the others go
//   to in_place.
void settle_written_state(Model& model, LoweredGraph& lowered, TellsDraw draws);

}  // namespace dslaunch::graph
