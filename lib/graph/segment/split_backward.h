// A backward in two halves, for zero-bubble pipelines: first the gradients of a segment's inputs,
// for which the previous stage waits; later the gradients of its parameters, for which no stage
// waits. Nothing is computed twice. At a node from which one path leads to inputs and another path
// to parameters, the gradient that arrives is stored, and the first half leaves out the path to
// parameters. Works on any autograd graph that is used once. Used by segmented_model.h and the
// compute lane. Source of the two halves: Qi et al. 2023 (zero bubble), arXiv 2401.10241, section
// 2.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace dslaunch::graph {

// The second half of a backward. Keeps alive only the nodes of the autograd graph that the second
// half needs.
class WeightHalf {
  public:
    WeightHalf();
    WeightHalf(WeightHalf&& other) noexcept;
    // Frees the graph that this object has kept so far, and takes the graph of OTHER.
    WeightHalf& operator=(WeightHalf&& other) noexcept;
    ~WeightHalf();

    // Adds the gradients of parameters to their .grad, in the same order and with the same bits as
    // a backward that is not split, and frees the graph. A second call does nothing.
    void run();

  private:
    friend WeightHalf backward_inputs(const std::vector<at::Tensor>& roots,
                                      const std::vector<at::Tensor>& gradients,
                                      const std::vector<at::Tensor>& leaves);
    struct Graph;
    std::unique_ptr<Graph> graph_;
};

// Runs the first half of a backward. GRADIENTS are the gradients of ROOTS. Sets .grad of LEAVES; it
// stays undefined if no gradient arrives. The returned half computes the gradients of all other
// leaves. REQUIRES: nothing else uses the graph of ROOTS.
[[nodiscard]] WeightHalf backward_inputs(const std::vector<at::Tensor>& roots,
                                         const std::vector<at::Tensor>& gradients,
                                         const std::vector<at::Tensor>& leaves);

}  // namespace dslaunch::graph
