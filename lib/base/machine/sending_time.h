// The time for which this process's TCP connections were busy sending, as the kernel counts it. It
// does not include the time in which the other end did not read, so it tells a slow link from a
// slow neighbour. Data path: kernel -> [here] -> heartbeats. Any thread.
#pragma once

#include "base/clock.h"

namespace dslaunch {

// Returns the time during which sent data waited for acknowledgement, summed over the open TCP
// connections of this process. Time during which the receiver's window was full is not counted.
// Returns 0 if the kernel does not measure these times.
[[nodiscard]] Duration sending_time();

}  // namespace dslaunch
