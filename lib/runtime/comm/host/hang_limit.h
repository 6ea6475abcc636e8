// The time that a rank waits for another rank before it reports that the other rank hangs
// (Error{kHang}, code 69). Each class that waits checks the limit itself, since it knows for which
// rank it waits: HostGroup among the ranks of a host, links between hosts, HostLink between stages,
// the NCCL plugin on GPUs. The limit is set by `--timeout`; this is its default.
#pragma once

#include <chrono>

#include "base/clock.h"

namespace dslaunch::runtime {

inline constexpr Duration kHangLimit = std::chrono::minutes(5);

}  // namespace dslaunch::runtime
