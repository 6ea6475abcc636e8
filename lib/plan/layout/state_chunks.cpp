#include "plan/layout/state_chunks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/check.h"

namespace dslaunch::plan {

namespace {

// Automatically chosen chunk sizes are multiples of this number, so that a chunk fills whole pages
// in any dtype.
constexpr int64_t kChunkStepNumel = int64_t{16} * 1024;
// The largest automatically chosen size. It is large enough to use a disk's full rate, and small
// enough that the few chunks in memory are a small part of all chunks.
constexpr int64_t kChunkNumelMax = 2 << 20;
constexpr int64_t kChunksWanted = 64;
// The size of chunks whose moments are packed in memory.
constexpr int64_t kPackedChunkNumel = 256 * kPackedTileNumel;

// Returns the number of elements that each rank's states of a bucket have, padding included.
std::vector<int64_t> shares_of(const Partition& partition, int bucket) {
    std::vector<int64_t> numel(static_cast<size_t>(partition.world_size), 0);
    for (const ShardPiece& piece : partition.buckets[bucket])
        numel[piece.owner] += round_up(piece.range.numel, kSliceAlignmentNumel);
    return numel;
}

int64_t largest_of(const std::vector<int64_t>& shares) {
    return *std::max_element(shares.begin(), shares.end());
}

bool is_on_disk(const FlatLayout& layout, const OffloadPlan& offload, int bucket) {
    const bool persistent = layout.buckets[bucket].kind == BucketKind::kPersistent;
    return (offload.states && bucket < layout.trained_buckets) ||
           (offload.parameters && !persistent);
}

// Returns the number of chunks in all buckets that are on disk, for chunks of at most STEP
// elements. LARGEST contains, for each bucket, the largest number of elements that any rank has in
// it. Thus the result is the same on every rank.
int64_t chunks_of(const std::vector<int64_t>& largest, int64_t step) {
    int64_t chunks = 0;
    for (const int64_t numel : largest) chunks += std::max<int64_t>(1, (numel + step - 1) / step);
    return chunks;
}

int64_t choose_chunk_numel(const FlatLayout& layout, const Partition& partition,
                           const OffloadPlan& offload) {
    const auto whole_lines = [](int64_t numel) {
        return std::max(kSliceAlignmentNumel, numel / kSliceAlignmentNumel * kSliceAlignmentNumel);
    };
    if (offload.chunk_numel > 0) return whole_lines(offload.chunk_numel);
    int64_t total = 0;
    for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b)
        total += largest_of(shares_of(partition, b));
    const int64_t most = std::max(kChunkNumelMax, total / (kChunksMax / 2));
    const int64_t chosen = std::clamp(round_up(total / kChunksWanted, kChunkStepNumel),
                                      kChunkStepNumel, round_up(most, kChunkStepNumel));
    return std::min(chosen, whole_lines(offload.chunk_numel_max));
}

// Numbers the chunks that pass through memory, in the order of the updates (StateChunk::turn). If
// the offload is not adaptive, first keeps the states of a fraction `1 - ratio` of the chunks in
// memory, so that they do not pass. The kept chunks are spread evenly among all chunks.
void deal_turns(StateChunks& chunks, const StateChunkOptions& options) {
    int64_t seen = 0;
    for (const int b : options.update_order) {
        const auto i = static_cast<size_t>(b);
        for (int c = chunks.first_of_bucket[i]; c < chunks.first_of_bucket[i + 1]; ++c) {
            StateChunk& chunk = chunks.all[c];
            if (chunk.states_on_disk() && !options.offload.adaptive) {
                const auto upto = [&](int64_t count) {
                    return std::floor(static_cast<double>(count) * options.offload.ratio + 1e-9);
                };
                if (upto(seen + 1) == upto(seen)) chunk.states = ChunkHome::kMemory;
                ++seen;
            }
            if (!chunk.on_disk()) continue;
            chunk.turn = static_cast<int>(chunks.turns.size());
            chunks.turns.push_back(c);
        }
    }
}

// Returns the numbers from 0 to COUNT - 1 in bit-reversed order, without the numbers that are too
// large. Every prefix of this order is spread about evenly over the range.
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

// Keeps parameters in memory as far as the config allows (parameter_numel_in_memory). Trained
// parameters come first, because on disk they would also be written. A chunk counts with the
// largest size that it has on any rank, so that all ranks make the same choice.
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

// If the placement is adaptive, fills keep_order and keeps its first chunks in memory. Chunks that
// are updated are spread over the step; frozen chunks come last.
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

}  // namespace

StateChunk StateChunk::given_back() const {
    StateChunk other = *this;
    for (ChunkHome* const home : {&other.states, &other.parameters})
        if (*home == ChunkHome::kKept) *home = ChunkHome::kDisk;
    return other;
}

int64_t StateChunks::numel_where(bool (StateChunk::*holds)() const, int bucket) const {
    int64_t numel = 0;
    const auto b = static_cast<size_t>(bucket);
    for (int c = first_of_bucket[b]; c < first_of_bucket[b + 1]; ++c)
        if ((all[c].*holds)()) numel += all[c].range.numel;
    return numel;
}

std::string too_many_chunks(const FlatLayout& layout, const Partition* partition,
                            const OffloadPlan& offload) {
    if (!offload.any()) return "";
    std::vector<int64_t> largest;
    for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b)
        if (is_on_disk(layout, offload, b)) largest.push_back(largest_of(shares_of(*partition, b)));
    const int64_t step = choose_chunk_numel(layout, *partition, offload);
    const int64_t chunks = chunks_of(largest, step);
    if (chunks <= kChunksMax) return "";
    int64_t low = step / kSliceAlignmentNumel, high = low;  // sizes in cache lines; `low` is too
                                                            // small
    while (chunks_of(largest, high * kSliceAlignmentNumel) > kChunksMax) low = high, high *= 2;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        (chunks_of(largest, middle * kSliceAlignmentNumel) > kChunksMax ? low : high) = middle;
    }
    return fmt::format(
        "{} divides the data of a rank into {} chunks, but at most {} are allowed; use {} or more",
        offload.chunk_numel > 0
            ? fmt::format("dslaunch.offload.chunk_numel: {}", offload.chunk_numel)
            : fmt::format("zero_optimization.sub_group_size: {}", offload.chunk_numel_max),
        chunks, kChunksMax, high * kSliceAlignmentNumel);
}

StateChunks make_state_chunks(const FlatLayout& layout, const Partition* partition,
                              const StateChunkOptions& options) {
    const OffloadPlan& offload = options.offload;
    DSL_CHECK(!offload.any() || partition != nullptr, "offload needs a partition");
    DSL_CHECK(!offload.parameters || options.stage == 3,
              "parameters can be offloaded only at stage 3, not at stage {}", options.stage);
    const int64_t step = offload.any() ? choose_chunk_numel(layout, *partition, offload) : 0;
    StateChunks chunks;
    for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b) {
        chunks.first_of_bucket.push_back(static_cast<int>(chunks.all.size()));
        const bool trained = b < layout.trained_buckets;
        StateChunk chunk;
        chunk.bucket = b;
        if (trained) chunk.states = offload.states ? ChunkHome::kDisk : ChunkHome::kMemory;
        if (offload.parameters && layout.buckets[b].kind != BucketKind::kPersistent)
            chunk.parameters = ChunkHome::kDisk;
        const bool on_disk = chunk.on_disk();
        if (!trained && !on_disk) continue;
        const std::vector<int64_t> shares = options.stage == 0
                                                ? std::vector<int64_t>{layout.buckets[b].numel}
                                                : shares_of(*partition, b);
        const int64_t own = shares[options.stage == 0 ? 0 : options.rank];
        // A checkpoint unpacks one chunk at a time, so packed chunks are small. They are cut at
        // tiles.
        const bool in_parts = on_disk || offload.packed_in_memory;
        const int64_t most = in_parts ? std::max<int64_t>(largest_of(shares), 1) : own;
        const int64_t size = on_disk                    ? step
                             : offload.packed_in_memory ? kPackedChunkNumel
                                                        : std::max<int64_t>(own, 1);
        for (int64_t begin = 0; begin < std::max<int64_t>(most, 1); begin += size) {
            chunk.range = {begin, std::clamp<int64_t>(own - begin, 0, size)};
            chunk.numel_max = std::clamp<int64_t>(most - begin, 0, size);
            chunks.all.push_back(chunk);
        }
        chunks.all.back().last = true;
    }
    chunks.first_of_bucket.push_back(static_cast<int>(chunks.all.size()));
    keep_parameters(chunks, options);
    keep_adaptive_chunks(chunks, options);
    deal_turns(chunks, options);
    return chunks;
}

}  // namespace dslaunch::plan
