// Kernels for matrix products and attention on the CPU that replace LibTorch's own in the whole
// process: for processors without 16-bit products, and for models without weights. Threads: any.
#pragma once

#include <memory>

namespace dslaunch::graph {

// If this processor has no 16-bit products, makes mm, addmm, bmm, baddbmm and attention's fused
// kernel compute 16-bit CPU tensors in fp32, from now until the process ends. LibTorch still
// computes all other types. Without this, LibTorch would multiply 16-bit tensors element by
// element, which takes 20 to 100 times as long as fp32. Products that are widened to fp32 a block
// at a time, summed in fp32 and rounded once take 1.2 to 2 times as long. Does nothing on a
// processor that has 16-bit products.
void use_wide_products();

class CpuKernels;

// A scope in which 16-bit tensors are widened in the same way on any processor; for tests.
class WideProducts {
  public:
    // BF16, FP16: true if tensors of that type are widened.
    WideProducts(bool bf16, bool fp16);
    ~WideProducts();
    WideProducts(const WideProducts&) = delete;
    WideProducts& operator=(const WideProducts&) = delete;

  private:
    std::unique_ptr<CpuKernels> kernels_;
    bool was_bf16_wide_, was_fp16_wide_;
};

// While this object exists, these kernels return zeros of the right shape and type, in forward and
// in backward, on every thread. Other operators compute as usual. Used for a model without weights:
// measure.h needs only sizes of tensors, and the arithmetic of a model with 14 B parameters would
// take minutes. REQUIRES: nothing else in the process computes.
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
