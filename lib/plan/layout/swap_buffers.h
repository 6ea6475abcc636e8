// The choice of the chunk that gives up its swap buffer to the next one. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/kinds/eviction_rule.h"

namespace dslaunch::plan {

// Returns the number of the buffer that each of TURNS turns uses. No more than TURNS buffers are
// used. A buffer holds the chunks of its turns one after the other, and keeps the last chunk until
// the next step; so a chunk that is alone in its buffer never moves. With kFifo and kLru, the turns
// use all buffers in rotation. With kLfu, only kLfuPassingBuffers buffers are used in rotation, and
// every further buffer keeps one chunk. The turns with kept chunks are spread over the step.
// REQUIRES: BUFFERS > 0 if there are turns.
[[nodiscard]] std::vector<int> deal_buffers(int64_t turns, int64_t buffers, EvictionRule rule);

// Returns the number of turns whose chunks are moved in every step.
[[nodiscard]] int64_t passing_turns(int64_t turns, int64_t buffers, EvictionRule rule);

}  // namespace dslaunch::plan
