// Kernels that take the places of LibTorch's own on the CPU, in the whole process.
#pragma once

#include <c10/util/Exception.h>
#include <torch/library.h>

namespace dslaunch::graph {

// What was replaced comes back when this ends. Of several, the one that began last is used.
class CpuKernels {
  public:
    CpuKernels() = default;
    CpuKernels(const CpuKernels&) = delete;
    CpuKernels& operator=(const CpuKernels&) = delete;

    // NAME: an operator of aten. KERNEL: a function with that operator's arguments.
    template <typename Kernel>
    void replace(const char* name, Kernel* kernel) {
        Silence silence;
        const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
        library_.impl(name, kernel);
    }

  private:
    // LibTorch warns of every kernel that takes another's place.
    class Silence : public c10::WarningHandler {
        void process(const c10::Warning&) override {}
    };

    torch::Library library_{torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__,
                            __LINE__};
};

}  // namespace dslaunch::graph
