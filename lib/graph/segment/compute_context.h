// The thread state that segments need: grad mode, the compute dtype, plain execution. All of it is
// thread-local in LibTorch, so every thread that runs a segment holds a ComputeContext; its
// destructor restores the state before it.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace dslaunch::graph {

class ComputeContext {
  public:
    // COMPUTE_DTYPE kFloat: operators run as the model says. kBFloat16, kHalf: operators run under
    // LibTorch's autocast with that dtype, on the CPU and on DEVICE.
    explicit ComputeContext(bool gradients, at::ScalarType compute_dtype = at::kFloat,
                            c10::DeviceType device = c10::kCPU);
    ComputeContext(const ComputeContext&) = delete;
    ComputeContext& operator=(const ComputeContext&) = delete;
    ~ComputeContext();

  private:
    struct Autocast {
        c10::DeviceType device;
        bool enabled;
        at::ScalarType dtype;
    };
    void set_autocast(c10::DeviceType device, at::ScalarType compute_dtype);

    bool optimized_before_;  // true if graphs were optimized as they ran
    c10::AutoGradMode grad_mode_;
    bool cache_before_;
    std::vector<Autocast> before_;  // state before, of the devices that were set
};

// A scope without autocast, for the backward of operators that a ComputeContext ran. A backward
// takes the dtypes that its forward left; casting again would narrow gradients of operators that
// autocast ran in fp32.
class BackwardContext {
  public:
    BackwardContext();
    BackwardContext(const BackwardContext&) = delete;
    BackwardContext& operator=(const BackwardContext&) = delete;

  private:
    c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

}  // namespace dslaunch::graph
