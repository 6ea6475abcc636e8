// Writes that LibTorch does not see: operators whose schema does not show that they write, or that
// may return their operand. Used by lower.h. No shared state.
#pragma once

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Changes the methods of MODULE and of its parts, and the functions that they call, each once:
// - an operator that writes a list of tensors (aten::_foreach_mul_) becomes one that makes new
//   values, and copies of these values into the tensors of the list: LibTorch assumes that nothing
//   uses what such operators write;
// - aten::embedding_renorm_ is added before calls of torch.nn.functional.embedding and
//   embedding_bag with max_norm: torch.jit.script leaves it out, but eager PyTorch,
//   torch.jit.trace and torch.export renormalize the rows;
// - aten::type_as becomes aten::to, whose schema says that it may return its operand; a dropout
//   that drops nothing and whose result is written becomes its operand.
// Throws Error{kInput}, naming an operator whose list is not built by a node, or that has no
// version which makes new values.
void show_hidden_writes(const Module& module);

// Throws Error{kInput} if GRAPH, whose calls are inlined, writes in place to the result of an
// operator that may return its operand without saying so in its schema, and if that operand is a
// parameter, buffer, constant or argument. Call it before unused nodes are removed: LibTorch
// assumes that nothing reads the result of such a write.
void refuse_unseen_writes(const Graph& graph);

}  // namespace dslaunch::graph
