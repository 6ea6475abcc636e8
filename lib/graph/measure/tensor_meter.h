// The memory of the tensors that a thread makes, as a trial pass measures it. Used by measure.h.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace dslaunch::graph {

// A meter of the tensors that one thread makes on one kind of device. It counts the bytes alive
// now, and their peak. LibTorch reports the allocations of the thread that made the meter, and of
// the threads that run its backwards. Memory that kernels use in addition to tensors (packed
// operands of products) is not counted.
class TensorMeter {
  public:
    explicit TensorMeter(c10::DeviceType device = c10::kCPU);
    TensorMeter(const TensorMeter&) = delete;
    TensorMeter& operator=(const TensorMeter&) = delete;
    ~TensorMeter();

    // Tensors of at least kLargeBlock (plan/model/model_info.h) are counted separately.
    struct Counts {
        int64_t small_bytes = 0;
        int64_t large_bytes = 0;
    };
    // Returns the bytes of the tensors that were made after the meter and are still alive.
    [[nodiscard]] Counts live() const;
    // Returns the largest value of each count since the last restart_peak().
    [[nodiscard]] Counts peak() const;
    // Makes the live bytes the new peak.
    void restart_peak();

  private:
    class Report;
    std::shared_ptr<Report> report_;  // part of LibTorch's thread state while guard_ lives
    c10::DebugInfoGuard guard_;
};

}  // namespace dslaunch::graph
