// Parameters, constants and arguments that forward writes in place. Each becomes something that the
// other ranks, a recompute and a trial pass can follow. Used beside lower.h. No
// shared state.
#pragma once

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/writes/hoisted_writes.h"

namespace dslaunch::graph {

// Changes LOWERED and MODEL so that the graph writes no more than buffers and the parameters of
// LoweredGraph::in_place:
// - an argument or a state is copied before it is written;
// - a constant, and a parameter that is not trained, becomes a buffer of MODEL;
// - a trained parameter whose new values depend on parameters, buffers and constants alone goes to
//   LoweredGraph::writes, and the graph reads it as if it were written; the rest goes to in_place.
void settle_written_state(Model& model, LoweredGraph& lowered, TellsDraw draws);

}  // namespace dslaunch::graph
