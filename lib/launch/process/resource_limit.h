// The limits of this process.
#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <cstdint>

namespace dslaunch::launch {

// RESOURCE: RLIMIT_MEMLOCK, RLIMIT_NOFILE, … The soft limit; -1: none, or not known.
[[nodiscard]] int64_t soft_limit(decltype(RLIMIT_NOFILE) resource);

// Raises the soft limit of open descriptors to the hard one when it is below WANTED, which programs
// that this one starts inherit, and logs it. One connection to a host takes one to four. Returns
// the limit that holds now.
[[nodiscard]] size_t raise_descriptor_limit(size_t wanted);

}  // namespace dslaunch::launch
