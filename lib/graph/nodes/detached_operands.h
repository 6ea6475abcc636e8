// A block of a graph that computes without gradients, as torch.no_grad() does. Used by the readers
// of scripts and of exported programs. No shared state.
#pragma once

#include <map>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// The operands of a block that computes without gradients. They are detached before the block.
// After the block, the graph uses the original tensors, with their gradients, for operands that the
// block has written in place.
class DetachedOperands {
  public:
    // Replaces the tensors in VALUES by detached tensors, made at their graph's insert point.
    void detach(std::vector<Value*>& values);
    // Returns the value that the graph uses after the block in place of OUTPUT, an output of the
    // block.
    [[nodiscard]] Value* given_back(Value* output) const;

  private:
    std::map<const Value*, Value*> before_;  // by the detached value
};

}  // namespace dslaunch::graph
