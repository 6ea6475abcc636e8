// Writes in place that LibTorch's analysis of a graph does not see, or that scripting leaves out of
// an archive. Used by lower.h before anything is inlined. No shared state.
#pragma once

namespace torch::jit {
struct Graph;
struct Module;
}  // namespace torch::jit

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
void show_hidden_writes(const torch::jit::Module& module);

// Throws Error{kInput} if GRAPH, whose calls are inlined, writes in place what an operator gives
// that may give its operand without saying so, where that is a parameter, buffer, constant or
// argument. To be called before unused nodes are removed: LibTorch takes such a write for one that
// nothing reads.
void refuse_unseen_writes(const torch::jit::Graph& graph);

}  // namespace dslaunch::graph
