// Operators of a graph that write their inputs in place, by their schemas. Used by readers of
// archives and by lower.h. No state; any thread.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace dslaunch::graph {

// The inputs that NODE itself writes in place, by index; lists of tensors too.
[[nodiscard]] std::vector<size_t> written_inputs(const torch::jit::Node& node);
// The input that NODE writes and gives back as its output OUTPUT; null: that output is another.
[[nodiscard]] torch::jit::Value* overwritten_as(const torch::jit::Node& node, size_t output);

// Operands of a block that computes without gradients. They are detached before it; after it, those
// that it has written in place are again the tensors that they were, with their gradients.
class DetachedOperands {
  public:
    // Replaces the tensors among VALUES at their graph's insert point.
    void detach(std::vector<torch::jit::Value*>& values);
    // Returns the value that OUTPUT of the block is after it.
    [[nodiscard]] torch::jit::Value* given_back(torch::jit::Value* output) const;

  private:
    std::map<const torch::jit::Value*, torch::jit::Value*> before_;  // by the detached value
};

}  // namespace dslaunch::graph
