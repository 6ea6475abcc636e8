// The rule (dslaunch.offload.cache) that selects the chunk that loses its buffer in memory when
// another chunk is read from disk.
#pragma once

#include <cstdint>

namespace dslaunch {

// Each value names the chunk that loses its buffer.
enum class EvictionRule : uint8_t {
    kFifo,  // the chunk that was read first
    kLru,   // the chunk used longest ago. A step updates each chunk once, always in the same order,
            // so the chosen chunk is the same as with kFifo
    kLfu    // the chunk used least often since it was read. If several chunks were used equally
            // often, the newest of them is chosen, so that the others stay in memory.
};

// Under kLfu, at most this number of buffers change their chunks: one buffer each for the chunk
// that is updated, the chunk that is read, the chunk that is written, and the chunk that is read
// ahead. Each of the other buffers keeps its chunk.
inline constexpr int64_t kLfuPassingBuffers = 4;

}  // namespace dslaunch
