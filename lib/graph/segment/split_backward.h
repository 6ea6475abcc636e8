// A backward in two halves, for zero-bubble pipelines: first the gradients of a segment's inputs,
// which the stage before waits for, later those of its parameters, which nobody waits for. Nothing
// is computed twice: where the ways to inputs and to parameters part, the gradient that came there
// is kept, and the first half leaves out what the second one makes. Works on any autograd graph
// that is used once. Stands beside segment.h; used by the compute lane.
// Source of the two halves: Qi et al. 2023 (zero bubble), arXiv 2401.10241, section 2.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace dslaunch::graph {

// What the second half begins with. Holds what it needs of the autograd graph and no more.
class WeightHalf {
  public:
    WeightHalf();
    WeightHalf(WeightHalf&& other) noexcept;
    WeightHalf& operator=(WeightHalf&& other) noexcept;
    ~WeightHalf();

    // Adds the gradients of parameters to theirs, in the order and with the bits of a backward that
    // is not split, and lets go of the graph. Nothing to do a second time.
    void run();

  private:
    friend WeightHalf backward_inputs(const std::vector<at::Tensor>& roots,
                                      const std::vector<at::Tensor>& gradients,
                                      const std::vector<at::Tensor>& leaves);
    struct Graph;
    std::unique_ptr<Graph> graph_;
};

// From ROOTS with their GRADIENTS to LEAVES, whose .grad is set (undefined where none comes); what
// it returns makes the gradients of all other leaves. REQUIRES: no other use of the graph behind
// the roots.
[[nodiscard]] WeightHalf backward_inputs(const std::vector<at::Tensor>& roots,
                                         const std::vector<at::Tensor>& gradients,
                                         const std::vector<at::Tensor>& leaves);

}  // namespace dslaunch::graph
