// The host writes to a device's memory and reads it: in place if the device is the host, else
// through memory of the host. Data path: archives, checkpoints, files <-> [here] <-> ZeRO state.
// Outside of a step, by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"

namespace dslaunch::zero {

// Calls write(std::byte* host), which writes BYTES there, and brings them to INTO by the compute
// queue.
template <typename Write>
void write_from_host(device::Device& device, void* into, int64_t bytes, const Write& write) {
    if (device.is_host()) return write(static_cast<std::byte*>(into));
    std::vector<std::byte> staging(static_cast<size_t>(bytes));
    write(staging.data());
    device.compute().copy_in(into, staging.data(), bytes);
    device.compute().finish();  // staging ends here
}

// The host's view of VALUES, which lie in DEVICE's memory, as they are now. REQUIRES: no work uses
// them.
class HostValues {
  public:
    HostValues(device::Device& device, std::span<const float> values) : values_(values) {
        if (device.is_host() || values.empty()) return;
        copy_.resize(values.size());
        device.compute().copy_out(copy_.data(), values.data(),
                                  static_cast<int64_t>(values.size_bytes()));
        values_ = copy_;
    }
    HostValues(const HostValues&) = delete;
    HostValues& operator=(const HostValues&) = delete;

    [[nodiscard]] std::span<const float> values() const { return values_; }

  private:
    std::vector<float> copy_;
    std::span<const float> values_;
};

}  // namespace dslaunch::zero
