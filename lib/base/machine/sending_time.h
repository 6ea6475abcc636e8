// The time for which this process's TCP connections were busy sending, as the kernel counts it. It
// does not include the time in which the other end did not read, so it tells a slow link from a
// slow neighbour. Data path: kernel -> [here] -> heartbeats. Any thread.
#pragma once

#include "base/clock.h"

namespace dslaunch {

// Returns the sum over all TCP connections that are open now: the time with unacknowledged data,
// without the time in which the receiver's window was full. 0 if the kernel does not count it.
[[nodiscard]] Duration sending_time();

}  // namespace dslaunch
