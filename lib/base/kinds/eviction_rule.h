// The rule that selects the chunk to remove from memory when another chunk is read from disk. The
// config key is dslaunch.offload.cache.
#pragma once

#include <cstdint>

namespace dslaunch {

// Each value names the chunk that loses its buffer.
enum class EvictionRule : uint8_t {
    kFifo,  // the chunk that was read first
    kLru,   // the chunk used longest ago. A step updates each chunk once, always in the same order,
            // so kLru chooses the same chunk as kFifo.
    kLfu    // the chunk used least often since it was read. If several chunks were used equally
            // often, the newest of them is chosen, so that the others stay in memory.
};

// The number of buffers whose content may change during a step under kLfu: one each for the chunk
// that is updated, the chunk that is read, the chunk that is written, and the chunk that is read
// ahead. Every other buffer keeps the same chunk.
inline constexpr int64_t kLfuPassingBuffers = 4;

}  // namespace dslaunch
