// Products of matrices and attention on the CPU by kernels that take the places of LibTorch's own,
// in the whole process: for processors without 16-bit products, and for models whose weights are
// not there. Threads: any.
#pragma once

#include <memory>

namespace dslaunch::graph {

// From the first call on, computes mm, addmm, bmm, baddbmm and attention's fused kernel of 16-bit
// tensors on the CPU in fp32 if this processor has no 16-bit products. LibTorch computes other
// types, and all on other processors, as before. It multiplies 16-bit tensors element by element,
// in 20 to 100 times the time of fp32; widened to fp32 a block at a time, summed in fp32 and
// rounded once, products take 1.2 to 2 times.
void use_wide_products();

class CpuKernels;

// A scope that does the same on any processor; for tests.
class WideProducts {
  public:
    // BF16, FP16: true if tensors of that type are widened.
    WideProducts(bool bf16, bool fp16);
    ~WideProducts();
    WideProducts(const WideProducts&) = delete;
    WideProducts& operator=(const WideProducts&) = delete;

  private:
    std::unique_ptr<CpuKernels> kernels_;
    bool bf16_before_, fp16_before_;
};

// While this exists, those kernels give zeros of the right shape and type, in forward and in
// backward, on every thread. Other operators compute. For a model whose weights are not there: what
// measure.h finds are sizes, and the arithmetic of a model of 14 B would take minutes. REQUIRES:
// nothing else in the process computes.
class ShapesOnly {
  public:
    ShapesOnly();
    ~ShapesOnly();
    ShapesOnly(const ShapesOnly&) = delete;
    ShapesOnly& operator=(const ShapesOnly&) = delete;

  private:
    std::unique_ptr<CpuKernels> kernels_;
};

}  // namespace dslaunch::graph
