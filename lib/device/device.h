// The device that stores a rank's parameters, gradients and optimizer states: the host, or a GPU.
// Through it, ZeRO's single implementation works on memory of any kind. Data path: job -> [here] ->
// ZeRO state. Threads: any thread allocates; each queue belongs to its lane.
#pragma once

#include <string_view>

#include "base/bytes.h"
#include "device/memory.h"
#include "device/queue.h"

namespace dslaunch::device {

// One device of one rank.
class Device {
  public:
    virtual ~Device() = default;

    // Returns true if the host can read and write the memory directly.
    [[nodiscard]] virtual bool is_host() const = 0;
    // Returns memory that is filled with zeros and aligned to 64 bytes. On a GPU the compute queue
    // writes the zeros. Throws Error{kSetup} if not enough memory is free; the message names the
    // bytes and WHAT they are for. The memory must not outlive the device.
    [[nodiscard]] virtual Memory allocate(Bytes bytes, std::string_view what) = 0;

    // Return the queue of the compute lane, the queue of the communication lane, and a queue for
    // all other threads, which take turns. On the host all three are the same queue, because every
    // call returns after its work is done.
    [[nodiscard]] virtual Queue& compute() = 0;
    [[nodiscard]] virtual Queue& communication() = 0;
    [[nodiscard]] virtual Queue& copies() = 0;
};

}  // namespace dslaunch::device
