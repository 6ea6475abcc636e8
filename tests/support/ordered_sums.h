// Gradients whose sum shows the order in which they were added, this sum computed by a plain loop,
// and random owners of their elements. The tests of all backends of collectives use them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "runtime/comm/collectives.h"
#include "runtime/comm/host/host_group.h"

namespace dslaunch::testing {

using namespace runtime;

// Returns a number with a magnitude from 2^-12 to 2^12 and either sign. Sums of such numbers in
// another order have other bits.
inline float gradient(int rank, int64_t i, uint32_t generation) {
    uint64_t x = static_cast<uint64_t>(rank) * 1'000'003 + static_cast<uint64_t>(i) * 7919 +
                 uint64_t{generation} * 104'729 + 1;
    x ^= x >> 12;
    x *= 0x2545f4914f6cdd1d;
    x ^= x >> 27;
    const float mantissa = static_cast<float>(x >> 40) / static_cast<float>(1 << 24) + 0.5F;
    const float value = std::ldexp(mantissa, static_cast<int>(x % 25) - 12);
    return (x & 1024) != 0 ? value : -value;
}

inline void fill(std::span<float> bucket, int rank, uint32_t generation) {
    for (size_t i = 0; i < bucket.size(); ++i)
        bucket[i] = gradient(rank, static_cast<int64_t>(i), generation);
}

// Sums one element by rule 14 in a plain loop: the local ranks of each host in order, then the
// hosts by node rank, scaled once at the end.
inline float expected(const std::vector<int>& node_sizes, int64_t i, uint32_t generation,
                      float scale) {
    float sum = 0;
    int rank = 0;
    for (size_t node = 0; node < node_sizes.size(); ++node) {
        float host = gradient(rank++, i, generation);
        for (int local = 1; local < node_sizes[node]; ++local)
            host += gradient(rank++, i, generation);
        sum = node == 0 ? host : sum + host;
    }
    return sum * scale;
}

inline bool same_bits(float a, float b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

// Divides [0, numel) into up to 12 ranges, some of them empty. Their owners are random nodes, or
// every node.
inline std::vector<NodeRange> random_owners(int64_t numel, int node_count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<NodeRange> owners;
    int64_t begin = 0;
    const auto count = static_cast<int>(random() % 12);
    for (int i = 0; i <= count; ++i) {
        const int64_t left = numel - begin;
        const int64_t part =
            random() % 4 == 0 ? 0 : static_cast<int64_t>(random()) % (left / 2 + 1);
        const int node = static_cast<int>(random() % static_cast<uint32_t>(node_count + 1)) - 1;
        owners.push_back({{begin, i == count ? left : part}, node});
        begin += part;
    }
    return owners;
}

struct RankParts {
    Collectives& collectives;
    HostGroup& group;
    const Arena& arena;
};

// Reduces BUCKET to OWNERS, overwrites on each host the elements that the host does not own, and
// gathers the bucket again. Returns the number of elements with unexpected bits, in the sums or
// after the gather.
inline int64_t wrong_in_sharded_round(const RankParts& self, BucketId bucket, Generation generation,
                                      const std::vector<NodeRange>& owners) {
    constexpr float kScale = 1.0F / 3.0F;
    Collectives& all = self.collectives;
    const Topology& topology = all.topology();
    const auto want = [&](int64_t i) {
        return expected(topology.node_sizes, i, generation, kScale);
    };
    all.await_free(bucket, generation);
    fill(all.bucket(bucket), topology.rank(), generation);
    all.post(bucket, generation);
    all.reduce(bucket, generation, kScale, owners);
    int64_t wrong = 0;
    std::vector<float> shard(all.bucket(bucket).size(), NAN);
    const ReducedParts parts = all.await_reduced(bucket, generation);
    for (const NodeRange& owned : owners) {
        if (owned.node != topology.node_rank && owned.node != kEveryNode) continue;
        int64_t at = owned.range.begin;
        parts.for_each_in(owned.range, [&](const Range& piece, std::span<const float> values) {
            wrong += piece.begin != at;
            for (const float value : values) {
                wrong += !same_bits(value, want(at));
                shard[at++] = value;
            }
        });
        wrong += at != owned.range.end();
    }
    all.release(bucket, generation);

    // The ranks of the host share this memory, the bucket of local rank 0. It is changed when
    // nobody uses it.
    const std::span<float> shared = self.arena.bucket_of_rank(bucket, 0);
    self.group.barrier();
    if (topology.local_rank == 0) std::copy(shard.begin(), shard.end(), shared.begin());
    self.group.barrier();
    all.gather_ranges(std::as_writable_bytes(shared), sizeof(float), owners);
    self.group.barrier();
    for (size_t i = 0; i < shared.size(); ++i)
        wrong += !same_bits(shared[i], want(static_cast<int64_t>(i)));
    self.group.barrier();  // all ranks have read before the next round
    return wrong;
}

}  // namespace dslaunch::testing
