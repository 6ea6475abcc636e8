// Products of 16-bit matrices and attention on processors without instructions for them. LibTorch
// multiplies there element by element, in 20 to 100 times the time of fp32; widened to fp32 a
// block at a time, summed in fp32 and rounded once, they take 1.2 to 2 times. Threads: any.
#pragma once

namespace dslaunch::graph {

// From the first call on, mm, addmm, bmm, baddbmm and attention's fused kernel of 16-bit tensors on
// the CPU are computed in fp32 wherever this processor has no 16-bit products; other types, and
// every other processor, are LibTorch's as before.
void use_wide_products();

// The same whatever the processor has, while it exists; for tests.
class WideProducts {
  public:
    // BF16, FP16: whether tensors of that type are widened.
    WideProducts(bool bf16, bool fp16);
    ~WideProducts();
    WideProducts(const WideProducts&) = delete;
    WideProducts& operator=(const WideProducts&) = delete;

  private:
    struct Kernels;
    Kernels* kernels_;
};

}  // namespace dslaunch::graph
