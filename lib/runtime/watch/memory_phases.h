// Measures the memory of a rank after each phase of its steps, for memory_breakdown. Data path:
// step runner -> [here] -> log. Threads: any lane may note an instruction; the rest is the compute
// lane's.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "plan/step/step_plan.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

// Samples memory; see the top of this file.
class MemoryPhases {
  public:
    // DEVICE is the rank's GPU, null on the CPU. It must outlive this object.
    explicit MemoryPhases(DeviceBackend* device) : device_(device) {}

    // Notes that an instruction has been carried out, or queued on a device.
    void note(plan::Op op);
    // Returns "forward 812.0 MiB (at most 830.1 MiB), backward …, update …; 901.2 MiB at most since
    // the start". Each phase shows the resident memory at its end in the last step, and in
    // parentheses the largest such value since the last call. On a GPU the text also has the bytes
    // of tensors there. Discards the samples afterwards.
    [[nodiscard]] std::string take();

  private:
    enum class Phase : uint8_t { kForward, kBackward, kUpdate, kNone };
    static constexpr size_t kPhases = 3;
    [[nodiscard]] static Phase phase_of(plan::Op op);
    struct Sample {
        int64_t rss_bytes = 0;
        int64_t rss_bytes_max = 0;
        int64_t device_bytes = 0;
        bool is_there = false;
    };

    DeviceBackend* device_;
    std::mutex mutex_;  // guards the samples
    std::array<Sample, kPhases> samples_;
};

}  // namespace dslaunch::runtime
