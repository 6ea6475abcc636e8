// The device that holds a rank's parameters, gradients and optimizer states: the host, or a GPU.
// ZeRO's one implementation works on memory of any kind through it. Data path: job -> [here] ->
// ZeRO state. Threads: any allocates; each queue is its lane's.
#pragma once

#include <string_view>

#include "base/bytes.h"
#include "device/memory.h"
#include "device/queue.h"

namespace dslaunch::device {

class Device {
  public:
    virtual ~Device() = default;

    // Returns true if the host reads and writes the memory as its own.
    [[nodiscard]] virtual bool is_host() const = 0;
    // Returns memory whose bytes are 0, aligned to 64 bytes. A GPU's compute queue writes its
    // zeros. Throws Error{kSetup} naming WHAT it is for and the bytes if that much is not free. It
    // must not outlive the device.
    [[nodiscard]] virtual Memory allocate(Bytes bytes, std::string_view what) = 0;

    // Return the queues of the compute and the communication lane, and one for threads beside the
    // lanes, which take turns. On the host all three are one: nothing needs an order.
    [[nodiscard]] virtual Queue& compute() = 0;
    [[nodiscard]] virtual Queue& communication() = 0;
    [[nodiscard]] virtual Queue& copies() = 0;
};

}  // namespace dslaunch::device
