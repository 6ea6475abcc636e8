// Devices for tests without a GPU: a backend of LibTorch that is made of threads. The addresses of
// a device's memory are reserved but not mapped, so the host cannot touch them; work for the device
// finds the bytes elsewhere. Operators are the CPU's, so they compute the same bits. They run
// later, on the thread of the device's compute stream, after random times. Freed memory is
// overwritten. Therefore a host that reads device memory ends by SIGSEGV, a stream that does not
// wait reads old values, and an operator that mixes devices throws. Tests can ask for faults: an
// allocation that fails (DeviceMemory), or a kernel that fails (ThreadStream).
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <memory>

#include "support/device/thread_stream.h"

namespace dslaunch::test {

// The number of devices. Each rank of a test's world has one.
inline constexpr int kTestDevices = 8;

// Registers "hpu:0" and so on with LibTorch, until the process ends. Call it before the first
// backward, because LibTorch's engine counts devices only once.
void register_test_devices();

// One device that works. REQUIRES: no other object has the same index, and no tensor of the device
// outlives this object.
class TestDevice {
  public:
    // Each operator runs after a delay of at most LONGEST_DELAY.
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

// Returns the address at which a kernel finds the bytes of the device memory at DATA. Only work on
// a stream may use it.
[[nodiscard]] void* kernel_address(void* data);

// Returns the number of operators that ran at once, because the shapes of their results depend on
// values or are unknown. All other operators ran later.
[[nodiscard]] int64_t operators_at_once();

}  // namespace dslaunch::test
