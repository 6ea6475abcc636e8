// Some chunks pass between memory and disk. This rule selects which of them loses its buffer
// (dslaunch.offload.cache).
#pragma once

#include <cstdint>

namespace dslaunch {

// Each value names the chunk that loses its buffer.
enum class EvictionRule : uint8_t {
    kFifo,  // the chunk that was read first
    kLru,   // the chunk used longest ago. A step updates each chunk once, always in the same order,
            // so that this is the chunk that was read first.
    kLfu    // the chunk used least often since it was read, or the newest of several such chunks,
            // so that most of the others stay in memory
};

// Under kLfu, chunks pass through at most this number of buffers: one each for the chunk that is
// updated, the chunk that is read, the chunk that is written, and the chunk that is read ahead. All
// other buffers keep their chunk.
inline constexpr int64_t kLfuPassingBuffers = 4;

}  // namespace dslaunch
