// Lets LibTorch see writes that the schemas of operators hide. Some schemas do not say that the
// operator writes, or that its result may be its input. Used by lower.h. No shared state.
#pragma once

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Changes the methods of MODULE and of its submodules, and the functions that they call. Changes
// each method and function only once:
// - an operator that writes a list of tensors (aten::_foreach_mul_) becomes an operator that makes
//   new values, followed by copies of these values into the list's tensors, because LibTorch
//   assumes that nothing uses what such operators write;
// - aten::embedding_renorm_ is added before calls of torch.nn.functional.embedding and
//   embedding_bag that have max_norm. Eager PyTorch, torch.jit.trace and torch.export renormalize
//   the rows there, but torch.jit.script does not;
// - aten::type_as becomes aten::to, whose schema says that it may return its operand; a dropout
//   that drops nothing and whose result is written becomes its operand.
// Throws Error{kInput}, naming an operator, if its list is not built by a node, or if it has no
// version that makes new values.
void show_hidden_writes(const Module& module);

// Throws Error{kInput} if GRAPH writes in place to a result that may be a parameter, buffer,
// constant or argument. Such a result comes from an operator that may return its operand although
// its schema does not say so. Call this before unused nodes are removed: LibTorch assumes that
// nothing reads the result of such a write. REQUIRES: calls in GRAPH are inlined.
void refuse_unseen_writes(const Graph& graph);

}  // namespace dslaunch::graph
