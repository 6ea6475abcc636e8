// A backward in two halves, for zero-bubble pipelines: first the gradients of a segment's inputs,
// for which the stage before waits, later the gradients of its parameters, for which nobody waits.
// Nothing is computed twice: where the paths to inputs and to parameters part, the arriving
// gradient is kept, and the first half leaves out the path to parameters. Works on any autograd
// graph that is used once. Used by segment.h and the compute lane. Source of the two halves: Qi et
// al. 2023 (zero bubble), arXiv 2401.10241, section 2.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace dslaunch::graph {

// The start of the second half. Holds only the nodes of the autograd graph that the second half
// needs.
class WeightHalf {
  public:
    WeightHalf();
    WeightHalf(WeightHalf&& other) noexcept;
    WeightHalf& operator=(WeightHalf&& other) noexcept;
    ~WeightHalf();

    // Adds the gradients of parameters to their .grad, in the order and with the bits of a backward
    // that is not split, and frees the graph. A second call does nothing.
    void run();

  private:
    friend WeightHalf backward_inputs(const std::vector<at::Tensor>& roots,
                                      const std::vector<at::Tensor>& gradients,
                                      const std::vector<at::Tensor>& leaves);
    struct Graph;
    std::unique_ptr<Graph> graph_;
};

// Runs the backward from ROOTS with their GRADIENTS to LEAVES, whose .grad is set (undefined if no
// gradient arrives). The result makes the gradients of all other leaves. REQUIRES: nothing else
// uses the graph of ROOTS.
[[nodiscard]] WeightHalf backward_inputs(const std::vector<at::Tensor>& roots,
                                         const std::vector<at::Tensor>& gradients,
                                         const std::vector<at::Tensor>& leaves);

}  // namespace dslaunch::graph
