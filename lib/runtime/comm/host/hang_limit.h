// The time that a rank waits for another before it says that the other one hangs (Error{kHang},
// code 69). Each way between ranks judges by itself, since each knows whom it waits for: HostGroup
// among the ranks of a host, links between hosts, HostLink between stages, the NCCL plugin on GPUs.
// The limit comes from `--timeout`; this is its default.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace dslaunch::runtime {

inline constexpr Duration kHangLimit = std::chrono::minutes(5);

}  // namespace dslaunch::runtime
