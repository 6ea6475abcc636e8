// The swap buffer of each chunk that passes between memory and disk. Data path: state chunks ->
// turn buffers -> step plan. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/kinds/eviction_rule.h"

namespace dslaunch::plan {

// Returns the buffer of each of TURNS, from 0 to the smaller of TURNS and BUFFERS. A buffer holds
// its turns' chunks one after the other, and the last one's until the next step: a chunk that has a
// buffer of its own never moves. Under kFifo and kLru the turns go round all buffers, under kLfu
// round kLfuPassingBuffers of them, and chunks that stay are spread over the step. REQUIRES:
// BUFFERS > 0 if there are turns.
[[nodiscard]] std::vector<int> deal_buffers(int64_t turns, int64_t buffers, EvictionRule rule);

// Returns the number of turns whose chunks move in every step.
[[nodiscard]] int64_t passing_turns(int64_t turns, int64_t buffers, EvictionRule rule);

}  // namespace dslaunch::plan
