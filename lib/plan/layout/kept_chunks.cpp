#include "plan/layout/kept_chunks.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dslaunch::plan {

namespace {

// 0 to COUNT - 1 so that the first ones, however many, lie about evenly in between: the numbers
// below COUNT among those that count up with their bits reversed.
std::vector<int> spread_order(int count) {
    int bits = 0;
    while ((1 << bits) < count) ++bits;
    std::vector<int> order;
    for (int i = 0; i < (1 << bits); ++i) {
        int reversed = 0;
        for (int bit = 0; bit < bits; ++bit)
            if ((i & (1 << bit)) != 0) reversed |= 1 << (bits - 1 - bit);
        if (reversed < count) order.push_back(reversed);
    }
    return order;
}

}  // namespace

void keep_parameters(StateChunks& chunks, const StateChunkOptions& options) {
    int64_t left = options.offload.parameter_numel_in_memory;
    std::vector<int> order = options.update_order;
    const auto buckets = static_cast<int>(chunks.first_of_bucket.size()) - 1;
    for (int b = 0; b < buckets; ++b)
        if (std::find(order.begin(), order.end(), b) == order.end()) order.push_back(b);
    for (const int b : order) {
        const auto i = static_cast<size_t>(b);
        for (int c = chunks.first_of_bucket[i]; c < chunks.first_of_bucket[i + 1]; ++c) {
            StateChunk& chunk = chunks.all[c];
            if (!chunk.parameters_on_disk() || chunk.numel_max > left) continue;
            chunk.parameters = ChunkHome::kMemory;
            left -= chunk.numel_max;
        }
    }
}

void keep_adaptive_chunks(StateChunks& chunks, const StateChunkOptions& options) {
    if (!options.offload.adaptive) return;
    std::vector<int> updated;
    std::vector<char> seen(chunks.all.size(), 0);
    for (const int b : options.update_order) {
        const auto i = static_cast<size_t>(b);
        for (int c = chunks.first_of_bucket[i]; c < chunks.first_of_bucket[i + 1]; ++c) {
            seen[c] = 1;
            if (chunks.all[c].on_disk()) updated.push_back(c);
        }
    }
    for (const int i : spread_order(static_cast<int>(updated.size())))
        chunks.keep_order.push_back(updated[i]);
    for (int c = 0; c < static_cast<int>(chunks.all.size()); ++c)
        if (seen[c] == 0 && chunks.all[c].on_disk()) chunks.keep_order.push_back(c);
    const auto count = static_cast<int64_t>(chunks.keep_order.size());
    const auto left = std::floor(static_cast<double>(count) * (1 - options.offload.ratio) + 1e-9);
    const int64_t kept =
        options.offload.kept_chunks >= 0 ? options.offload.kept_chunks : static_cast<int64_t>(left);
    for (int64_t i = 0; i < std::min(kept, count); ++i) {
        StateChunk& chunk = chunks.all[chunks.keep_order[i]];
        for (ChunkHome* const home : {&chunk.states, &chunk.parameters})
            if (*home == ChunkHome::kDisk) *home = ChunkHome::kKept;
    }
}

}  // namespace dslaunch::plan
