// The number of descriptors that this process may have open. One connection to a host takes one to
// four.
#pragma once

#include <cstddef>

namespace dslaunch::launch {

// Raises the soft limit to the hard one when it is below WANTED, which programs that this one
// starts inherit, and logs it. Returns the limit that holds now.
[[nodiscard]] size_t raise_descriptor_limit(size_t wanted);

}  // namespace dslaunch::launch
