// Access of the host to a device's memory: directly if the device is the host, otherwise through a
// copy in the host's memory. Data path: archives, checkpoints, files <-> [here] <-> ZeRO state.
// Used outside of a step, by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"

namespace dslaunch::zero {

// Calls write(std::byte* host), which must write BYTES bytes to HOST, and copies these bytes to
// INTO on the compute queue.
template <typename Write>
void write_from_host(device::Device& device, void* into, int64_t bytes, const Write& write) {
    if (device.is_host()) return write(static_cast<std::byte*>(into));
    std::vector<std::byte> staging(static_cast<size_t>(bytes));
    write(staging.data());
    device.compute().copy_in(into, staging.data(), bytes);
    device.compute().finish();  // before STAGING is destroyed
}

// A view of VALUES for the host. If VALUES are in the memory of a GPU, it is a view of a copy.
// REQUIRES: no queued work uses VALUES.
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

    // Returns the values, which are valid during the life of this object.
    [[nodiscard]] std::span<const float> values() const { return values_; }

  private:
    std::vector<float> copy_;
    std::span<const float> values_;
};

}  // namespace dslaunch::zero
