// The rule by which chunks between memory and disk give up their buffers (dslaunch.offload.cache).
#pragma once

#include <cstdint>

namespace dslaunch {

enum class EvictionRule : uint8_t {
    kFifo,  // the chunk that came first
    kLru,   // the chunk used longest ago. A step updates each chunk once, always in the same order,
            // so that this is the one that came first.
    kLfu    // the chunk used least since it came, of several the newest, so that most of the others
            // stay in memory
};

// The buffers that chunks pass through under kLfu, if there are as many: one chunk is updated, one
// is read, one is written, and one is ahead. All other buffers keep their chunk.
inline constexpr int64_t kLfuPassingBuffers = 4;

}  // namespace dslaunch
