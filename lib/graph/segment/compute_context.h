// The thread state that segments need: grad mode, the compute dtype, and execution of graphs as
// they are, without optimization. All of it is thread-local in LibTorch, so every thread that runs
// a segment holds a ComputeContext. Its destructor restores the previous state.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace dslaunch::graph {

// A scope in which the calling thread can run segments.
class ComputeContext {
  public:
    // COMPUTE_DTYPE: with kFloat, operators run in the model's dtypes; with kBFloat16 or kHalf,
    // they run under LibTorch's autocast with that dtype, on the CPU and on DEVICE.
    explicit ComputeContext(bool gradients, at::ScalarType compute_dtype = at::kFloat,
                            c10::DeviceType device = c10::kCPU);
    ComputeContext(const ComputeContext&) = delete;
    ComputeContext& operator=(const ComputeContext&) = delete;
    ~ComputeContext();

  private:
    struct Autocast {
        c10::DeviceType device;
        bool is_enabled;
        at::ScalarType dtype;
    };
    void set_autocast(c10::DeviceType device, at::ScalarType compute_dtype);

    bool was_optimized_;  // true if graphs were optimized when they ran
    c10::AutoGradMode grad_mode_;
    bool had_cache_;
    std::vector<Autocast> before_;  // the previous state of the devices that were set
};

// A scope without autocast, for the backward of operators that ran in a ComputeContext. A backward
// uses the dtypes of its forward. Casting again would narrow gradients of operators that autocast
// ran in fp32.
class BackwardContext {
  public:
    BackwardContext();
    BackwardContext(const BackwardContext&) = delete;
    BackwardContext& operator=(const BackwardContext&) = delete;

  private:
    c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

}  // namespace dslaunch::graph
