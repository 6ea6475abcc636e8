// The time in memory of the reduced gradients of chunks that wait for the norm: the buffer that
// each passes through while micro steps are added up and when its chunk is updated, with the reads
// and writes. Data path: state chunks -> sum passes -> step plan. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dslaunch::plan {

struct SumUse {
    int chunk = 0;  // index into StateChunks::all
    int buffer = 0;
    bool read = false;   // from disk, before the use
    bool write = false;  // to disk, after the use: the buffer is needed before the chunk is used
                         // again
};

struct SumPasses {
    int chunks = 0;
    int buffers = 0;
    // One use for each time that a chunk's gradients are added to the sums, then one for each
    // chunk's update; nothing is held before the first use.
    std::vector<SumUse> uses;

    [[nodiscard]] size_t first_update() const { return uses.size() - static_cast<size_t>(chunks); }
};

// ADDED are the chunks in the order in which the step reduces them, each as often as it is reduced.
// UPDATED are the same chunks, each once, in the order of their updates. BUFFERS_MAX bounds the
// buffers. The sums needed last are evicted, but a few of those used last stay, so that reads and
// writes go on beside the adding. Sums for up to BUFFERS_MAX - 1 later updates are read ahead.
[[nodiscard]] SumPasses make_sum_passes(std::span<const int> added, std::span<const int> updated,
                                        int64_t buffers_max);

}  // namespace dslaunch::plan
