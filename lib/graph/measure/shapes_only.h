// Products of matrices and attention on the CPU as shapes alone, for a model whose weights are not
// there: what measure.h finds are sizes, and the arithmetic of a model of 14 B would take minutes.
#pragma once

#include "graph/lower/cpu_kernels.h"

namespace dslaunch::graph {

// While this exists, mm, addmm, bmm, baddbmm and attention's fused kernel on the CPU give zeros of
// the right shape and type, in forward and in backward, on every thread. Other operators compute.
// REQUIRES: nothing else in the process computes.
class ShapesOnly {
  public:
    ShapesOnly();
    ShapesOnly(const ShapesOnly&) = delete;
    ShapesOnly& operator=(const ShapesOnly&) = delete;

  private:
    CpuKernels kernels_;
};

}  // namespace dslaunch::graph
