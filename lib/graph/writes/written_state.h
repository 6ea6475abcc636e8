// Parameters, constants and arguments that forward writes in place, and blocks without gradients.
// Each becomes something that the other ranks, a recompute and a trial pass can follow. Used beside
// lower.h. No shared state.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Changes the methods of MODULE and its parts, and the functions that they call, once:
// - operators that write lists of tensors (aten::_foreach_mul_) become ones that make new values,
//   and copies of these: LibTorch takes what they write for unused;
// - aten::embedding_renorm_ is put in front of calls of torch.nn.functional.embedding and
//   embedding_bag with max_norm: torch.jit.script leaves it out, where eager PyTorch,
//   torch.jit.trace and torch.export renormalize the rows;
// - aten::type_as becomes aten::to, whose schema says that it may give its operand, and a dropout
//   of nothing whose result is written becomes its operand.
// Throws Error{kInput} naming an operator whose list is not written out, or that has no such twin.
void show_hidden_writes(const Module& module);

// Throws Error{kInput} if GRAPH, with inlined calls, writes in place to the result of an operator
// that may return its operand without saying so, if that operand is a parameter, buffer, constant
// or argument. Call it before unused nodes are removed: LibTorch takes such a write for one that
// nothing reads.
void refuse_unseen_writes(const Graph& graph);

// Replaces `with torch.no_grad():` in GRAPH by the same operators on detached tensors, so that the
// graph may be cut inside it. A block that takes containers of tensors stays as it is.
void detach_without_gradients(Graph& graph);

// Returns VALUE without its gradient, by nodes in front of BEFORE: a tensor, or a list that a node
// has made of tensors. Null: VALUE is something else.
[[nodiscard]] Value* detached(Value* value, Node* before);

// Fills in LoweredGraph::writes and in_place for PARAMETERS, the trained ones that the graph
// writes, by index in the model. The graph then reads the hoisted ones as if they were written.
// Throws Error{kInput} naming a parameter if a trace does not say whether it is read with a
// gradient.
// DRAWS tells nodes that draw random numbers (lower/dropout_seeds.h).
using TellsDraw = bool (*)(const Node& node);
void hoist_writes(const Model& model, LoweredGraph& lowered, const std::vector<int>& parameters,
                  TellsDraw draws);

// Returns true if forward moves one of INPUTS, inputs of LOWERED's graph by index, by what it
// computes from the batch or by random numbers.
[[nodiscard]] bool moves_by_batch(const LoweredGraph& lowered, const std::vector<size_t>& inputs,
                                  TellsDraw draws);

// Changes LOWERED and MODEL so that the graph writes no more than buffers and the parameters of
// LoweredGraph::in_place:
// - an argument or a state is copied before it is written;
// - a constant, and a parameter that is not trained, becomes a buffer of MODEL;
// - a trained parameter whose new values depend on parameters, buffers and constants alone goes to
//   LoweredGraph::writes, and the graph reads it as if it were written; the rest goes to in_place.
void settle_written_state(Model& model, LoweredGraph& lowered, TellsDraw draws);

}  // namespace dslaunch::graph
