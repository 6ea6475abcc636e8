// Devices for tests without a GPU: a backend of LibTorch's, made of threads. The host cannot touch
// a device's memory: its addresses are reserved and not mapped, and work for the device finds the
// bytes elsewhere. Operators are the CPU's, so their bits are too; they run later, on the thread of
// the device's compute stream, after random times. Freed memory is overwritten. So a host that
// reads device memory ends by SIGSEGV, a stream that does not wait reads old values, and an
// operator that mixes devices throws. Faults on demand: an allocation that fails (DeviceMemory), a
// kernel that fails (ThreadStream).
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <memory>

#include "support/device/thread_stream.h"

namespace dslaunch::test {

// The number of devices, one for each rank of a test's world.
inline constexpr int kTestDevices = 8;

// Makes "hpu:0" and so on known to LibTorch, in this process for good. Call it before the first
// backward: LibTorch's engine counts devices once.
void register_test_devices();

// One device at work. REQUIRES: no other object has the same index, and no tensor of the device
// outlives this.
class TestDevice {
  public:
    // Each operator comes after up to LONGEST_DELAY.
    TestDevice(int index, uint64_t seed, Duration longest_delay = std::chrono::microseconds(20));
    TestDevice(const TestDevice&) = delete;
    TestDevice& operator=(const TestDevice&) = delete;
    ~TestDevice();

    [[nodiscard]] c10::Device device() const { return {c10::kHPU, index_}; }
    // Returns the stream of LibTorch's operators.
    [[nodiscard]] ThreadStream& compute() { return *compute_; }

  private:
    c10::DeviceIndex index_;
    std::unique_ptr<ThreadStream> compute_;
};

// Returns where a kernel finds the bytes of device memory at DATA. Only work on a stream may use
// them.
[[nodiscard]] void* kernel_address(void* data);

// Returns the number of operators that ran at once because the shapes of their results depend on
// values or are unknown. All others ran later.
[[nodiscard]] int64_t operators_at_once();

}  // namespace dslaunch::test
