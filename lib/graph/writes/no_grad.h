// Blocks of a script that compute without gradients. Used beside lower.h. No shared state.
#pragma once

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace dslaunch::graph {

// Replaces `with torch.no_grad():` in GRAPH by the same operators on detached tensors, so that the
// graph may be cut inside it. A block that takes containers of tensors stays as it is.
void detach_without_gradients(torch::jit::Graph& graph);

// VALUE without its gradient, by nodes in front of BEFORE: a tensor, or a list that a node has made
// of tensors. Null: VALUE is something else.
[[nodiscard]] torch::jit::Value* detached(torch::jit::Value* value, torch::jit::Node* before);

}  // namespace dslaunch::graph
