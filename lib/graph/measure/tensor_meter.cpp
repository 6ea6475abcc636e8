#include "graph/measure/tensor_meter.h"

#include <c10/core/Allocator.h>

#include <algorithm>

#include "plan/model/model_info.h"

namespace dslaunch::graph {

class TensorMeter::Report final : public c10::MemoryReportingInfoBase {
  public:
    explicit Report(c10::DeviceType device) : device_(device) {}
    // LibTorch does not report the freeing of tensors that were made before the meter.
    void reportMemoryUsage(void* /*memory*/, int64_t change, size_t /*allocated*/,
                           size_t /*reserved*/, c10::Device device) override {
        if (device.type() != device_) return;
        const bool is_large =
            change >= plan::kLargeBlock.value || -change >= plan::kLargeBlock.value;
        (is_large ? live.large_bytes : live.small_bytes) += change;
        peak.small_bytes = std::max(peak.small_bytes, live.small_bytes);
        peak.large_bytes = std::max(peak.large_bytes, live.large_bytes);
    }
    [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

    Counts live;
    Counts peak;

  private:
    c10::DeviceType device_;
};

TensorMeter::TensorMeter(c10::DeviceType device)
    : report_(std::make_shared<Report>(device)),
      guard_(c10::DebugInfoKind::PROFILER_STATE, report_) {}

TensorMeter::~TensorMeter() = default;

TensorMeter::Counts TensorMeter::live() const {
    return report_->live;
}

TensorMeter::Counts TensorMeter::peak() const {
    return report_->peak;
}

void TensorMeter::restart_peak() {
    report_->peak = report_->live;
}

}  // namespace dslaunch::graph
