// Bytes of the tensors that one thread makes on a kind of device: those alive now, and the most at
// any time. Feeds measure.h. LibTorch reports allocations of the thread that the meter was made on,
// and of the threads of its backwards; memory that kernels take beside tensors (packed operands of
// products) is not counted.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace dslaunch::graph {

class TensorMeter {
  public:
    explicit TensorMeter(c10::DeviceType device = c10::kCPU);
    TensorMeter(const TensorMeter&) = delete;
    TensorMeter& operator=(const TensorMeter&) = delete;
    ~TensorMeter();

    // Tensors of kLargeBlock (plan/model/model_info.h) and more are counted apart from the others.
    struct Counts {
        int64_t small_bytes = 0;
        int64_t large_bytes = 0;
    };
    // Bytes of the tensors that were made since the meter and are still alive.
    [[nodiscard]] Counts live() const;
    // The largest value of each count since the last restart_peak.
    [[nodiscard]] Counts peak() const;
    void restart_peak();

  private:
    class Report;
    std::shared_ptr<Report> report_;  // with LibTorch's state of this thread, while guard_ stands
    c10::DebugInfoGuard guard_;
};

}  // namespace dslaunch::graph
