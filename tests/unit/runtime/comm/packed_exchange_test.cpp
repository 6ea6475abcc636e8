// Reductions and gathers of packed values, over simulated hosts.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "kernels/flat_optimizer.h"
#include "kernels/packing.h"
#include "runtime/comm/collectives.h"
#include "support/catch.h"
#include "support/ordered_sums.h"
#include "support/world.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::testing;

namespace {

const std::vector<std::vector<int>> kHosts = {{1, 1}, {2, 2}, {2, 1, 2}, {3, 2, 4}, {1, 1, 1, 1}};

// Returns owners: the first and the last elements belong to every node, the others are divided by
// halves.
std::vector<NodeRange> owners_of(int64_t numel, int hosts) {
    std::vector<NodeRange> owners;
    int64_t begin = 0;
    for (int part = 0; part < 2 * hosts; ++part) {
        const Range range = part_range(numel - 32, {part, 2 * hosts});
        owners.push_back({range, part % hosts});
        begin = range.end();
    }
    owners.push_back({{begin, numel - begin}, kEveryNode});
    return owners;
}

// Returns the largest magnitude of a host's sums over all elements. No block of it has a larger
// one.
float largest_sum(const std::vector<int>& node_sizes, int64_t numel, uint32_t generation) {
    float largest = 0;
    int first = 0;
    for (const int ranks : node_sizes) {
        for (int64_t i = 0; i < numel; ++i) {
            float sum = 0;
            for (int local = 0; local < ranks; ++local)
                sum += gradient(first + local, i, generation);
            largest = std::max(largest, std::fabs(sum));
        }
        first += ranks;
    }
    return largest;
}

struct PackedRound {
    int64_t inexact = 0;  // elements other than the exact sum
    int64_t wrong = 0;    // elements with an error above packing's, or any if shared
};

PackedRound reduce_packed(const std::vector<int>& node_sizes, int64_t numel,
                          const ReduceCoding& coding) {
    BucketId bucket;
    InProcessWorld world({.node_sizes = node_sizes},
                         [&](ArenaLayout& layout) { bucket = layout.add_bucket("bucket", numel); });
    const auto hosts = static_cast<int>(node_sizes.size());
    const std::vector<NodeRange> owners = owners_of(numel, hosts);
    const float codes = coding.packing == WirePacking::kInt8 ? 127.0F : 7.0F;
    std::atomic<int64_t> inexact{0}, wrong{0};
    const float largest = largest_sum(node_sizes, numel, 1);
    run_world(world, [&](InProcessRank& self, int rank) {
        Collectives& all = *self.collectives;
        fill(all.bucket(bucket), rank, 1);
        all.post(bucket, 1);
        all.reduce(bucket, 1, 0.5F, owners, coding);
        const ReducedParts parts = all.await_reduced(bucket, 1);
        for (const NodeRange& owned : owners) {
            if (owned.node != kEveryNode && owned.node != all.topology().node_rank) continue;
            // Each other host's term has an error of at most a code of its block.
            const float allowed =
                owned.node == kEveryNode
                    ? 0
                    : 0.5F * (1 + 1e-5F) * static_cast<float>(hosts - 1) * largest / codes;
            int64_t at = owned.range.begin;
            parts.for_each_in(owned.range, [&](const Range&, std::span<const float> values) {
                for (const float value : values) {
                    const float exact = expected(node_sizes, at++, 1, 0.5F);
                    inexact += value != exact;
                    wrong += !(std::fabs(value - exact) <= allowed);
                }
            });
        }
        all.release(bucket, 1);
        self.group->barrier();
    });
    return {inexact, wrong};
}

}  // namespace

TEST_CASE("packed sums are within a code of each other host's block, shared ones exact") {
    for (const std::vector<int>& node_sizes : kHosts) {
        for (const int64_t numel : {int64_t{40}, int64_t{1001}, int64_t{5000}}) {
            for (const WirePacking packing : {WirePacking::kInt8, WirePacking::kInt4}) {
                INFO(world_name(node_sizes)
                     << ", " << numel << ", packing " << static_cast<int>(packing));
                const PackedRound round = reduce_packed(node_sizes, numel, {packing, 11, {}});
                CHECK(round.wrong == 0);
                // Otherwise nothing would have been packed.
                if (numel > 1000) CHECK(round.inexact > numel / 4);
            }
        }
    }
}

TEST_CASE("packed sums of several chunks come in order") {
    constexpr int64_t kNumel = (5 << 19) + 7;
    for (const std::vector<int>& node_sizes : std::vector<std::vector<int>>{{1, 1}, {2, 1}}) {
        const PackedRound round = reduce_packed(node_sizes, kNumel, {WirePacking::kInt4, 3, {}});
        CHECK(round.wrong == 0);
        CHECK(round.inexact > kNumel / 4);
    }
}

TEST_CASE("a packed gather leaves equal bits on every host, its owner's included") {
    for (const std::vector<int>& node_sizes : kHosts) {
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
            CAPTURE(world_name(node_sizes));
            constexpr int64_t kNumel = 5003;
            const int64_t element = dtype_bytes(dtype);
            SliceId weights;
            InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
                weights = layout.add_shared("weights", {kNumel * element});
            });
            const auto hosts = static_cast<int>(node_sizes.size());
            const std::vector<NodeRange> owners = owners_of(kNumel, hosts);
            std::vector<std::vector<std::byte>> of_host(node_sizes.size());
            std::vector<float> values(kNumel);
            for (int64_t i = 0; i < kNumel; ++i)
                values[i] = std::sin(0.37F * static_cast<float>(i));
            run_world(world, [&](InProcessRank& self, int) {
                const Topology& place = self.collectives->topology();
                const std::span<std::byte> bytes = self.arena->shared(weights);
                if (place.local_rank == 0) {
                    // Elements that this host does not own contain nonsense before.
                    std::memset(bytes.data(), 0x55, bytes.size());
                    for (const NodeRange& owned : owners) {
                        if (owned.node != kEveryNode && owned.node != place.node_rank) continue;
                        const float* const from = values.data() + owned.range.begin;
                        std::byte* const into = bytes.data() + owned.range.begin * element;
                        if (dtype == DType::kF32)
                            std::memcpy(into, from, static_cast<size_t>(owned.range.numel) * 4);
                        else
                            kernels::to_half(from, reinterpret_cast<uint16_t*>(into),
                                             owned.range.numel, dtype);
                    }
                }
                self.group->barrier();
                self.collectives->gather_ranges(bytes, element, owners,
                                                {WirePacking::kInt8, dtype});
                self.group->barrier();
                if (place.local_rank == 0)
                    of_host[place.node_rank].assign(bytes.begin(), bytes.end());
                self.group->barrier();
            });
            for (const std::vector<std::byte>& bytes : of_host) CHECK(bytes == of_host.front());
            std::vector<float> came(kNumel);
            if (dtype == DType::kF32)
                std::memcpy(came.data(), of_host.front().data(), of_host.front().size());
            else
                kernels::from_half(reinterpret_cast<const uint16_t*>(of_host.front().data()),
                                   came.data(), kNumel, dtype);
            int64_t far = 0, exact = 0;
            for (int64_t i = 0; i < kNumel; ++i) {
                // Half a code of a block whose largest value is below 1, and twice the rounding of
                // 16 bits.
                far += !(std::fabs(came[i] - values[i]) <= 0.5F / 127 + 0x1p-8F);
                exact += came[i] == values[i];
            }
            CHECK(far == 0);
            CHECK(exact < kNumel / 2);
        }
    }
}

TEST_CASE("packed values take the bytes that the formula counts") {
    for (const std::vector<int>& node_sizes : kHosts) {
        CAPTURE(world_name(node_sizes));
        constexpr int64_t kNumel = 9001;
        const auto hosts = static_cast<int>(node_sizes.size());
        const std::vector<NodeRange> owners = owners_of(kNumel, hosts);
        std::vector<std::atomic<int64_t>> reduced(node_sizes.size()), gathered(node_sizes.size());
        std::atomic<int64_t> others{0};
        BucketId bucket;
        SliceId weights;
        InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
            bucket = layout.add_bucket("bucket", kNumel);
            weights = layout.add_shared("weights", {kNumel * 2});
        });
        run_world(world, [&](InProcessRank& self, int) {
            Collectives& all = *self.collectives;
            const auto node = static_cast<size_t>(all.topology().node_rank);
            all.post(bucket, 1);
            {
                const TrafficScope scope(TrafficKind::kReduce);
                all.reduce(bucket, 1, 1.0F, owners, {WirePacking::kInt4, 1, {}});
            }
            {
                const TrafficScope scope(TrafficKind::kGather);
                all.gather_ranges(self.arena->shared(weights), 2, owners,
                                  {WirePacking::kInt8, DType::kBF16});
            }
            reduced[node] += all.traffic().of(TrafficKind::kReduce).sent.value;
            gathered[node] += all.traffic().of(TrafficKind::kGather).sent.value;
            others += all.traffic().of(TrafficKind::kControl).sent.value;
        });
        CHECK(others == 0);
        const int bridges = *std::ranges::min_element(node_sizes);
        const auto bytes = [&](WirePacking packing, int node, int64_t element) {
            int64_t numel = 0, sum = 0;
            for (const NodeRange& owned : owners)
                if (owned.node == node) numel += owned.range.numel;
            for (int k = 0; k < bridges; ++k)
                sum += wire_bytes(packing, part_range(numel, {k, bridges}).numel, element);
            return sum;
        };
        for (int node = 0; node < hosts; ++node) {
            int64_t to_owners = 0;
            for (int other = 0; other < hosts; ++other)
                if (other != node) to_owners += bytes(WirePacking::kInt4, other, 4);
            const int64_t every = bytes(WirePacking::kNone, kEveryNode, 4) * (hosts - 1);
            CHECK(reduced[node] == to_owners + every);
            CHECK(gathered[node] == bytes(WirePacking::kInt8, node, 2) * (hosts - 1));
            // Half of the bytes of bf16, or an eighth of the bytes of fp32, and the scales.
            const double exact =
                static_cast<double>(bytes(WirePacking::kNone, node, 2) * (hosts - 1));
            CHECK(static_cast<double>(gathered[node]) < 0.53 * exact);
        }
    }
}

TEST_CASE("kept errors make the sums of many packed reductions come to the exact ones") {
    const std::vector<int> node_sizes = {1, 1};
    constexpr int64_t kNumel = 2048;
    constexpr Generation kSteps = 64;
    const std::vector<NodeRange> owners = {{{0, 1024}, 0}, {{1024, 1024}, 1}};
    // Returns the mean distance, over elements, of the sums over all steps from the exact sums.
    const auto distance = [&](bool keeps) {
        BucketId bucket;
        InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
            bucket = layout.add_bucket("bucket", kNumel);
        });
        std::mutex mutex;
        double off = 0;
        run_world(world, [&](InProcessRank& self, int rank) {
            Collectives& all = *self.collectives;
            std::vector<float> errors(keeps ? static_cast<size_t>(sent_numel(owners, rank, {0, 1}))
                                            : 0);
            std::vector<double> sums(1024, 0.0), exact(1024, 0.0);
            for (Generation g = 1; g <= kSteps; ++g) {
                all.await_free(bucket, g);
                // The gradients are the same in each step, so rounding to nearest makes the same
                // error each time.
                for (int64_t i = 0; i < kNumel; ++i)
                    all.bucket(bucket)[static_cast<size_t>(i)] =
                        std::sin(0.1F * static_cast<float>(i) + static_cast<float>(rank));
                all.post(bucket, g);
                all.reduce(bucket, g, 1.0F, owners, {WirePacking::kInt4, g, errors});
                all.await_reduced(bucket, g).for_each_in(
                    owners[rank].range, [&](const Range& piece, std::span<const float> values) {
                        for (size_t k = 0; k < values.size(); ++k) {
                            const int64_t i = piece.begin + static_cast<int64_t>(k);
                            const auto index = static_cast<size_t>(i - owners[rank].range.begin);
                            sums[index] += values[k];
                            for (int r = 0; r < 2; ++r)
                                exact[index] +=
                                    std::sin(0.1F * static_cast<float>(i) + static_cast<float>(r));
                        }
                    });
                all.release(bucket, g);
            }
            const std::lock_guard lock(mutex);
            for (size_t i = 0; i < sums.size(); ++i) off += std::fabs(sums[i] - exact[i]) / 2048.0;
        });
        return off;
    };
    // At the end, a kept error is below half a code, 1/14. Drawn codes drift by the root of the
    // number of steps.
    CHECK(distance(true) < 0.08);
    CHECK(distance(false) > 0.2);
}

TEST_CASE("a gradient that is not finite leaves no error behind") {
    const std::vector<NodeRange> owners = {{{0, 512}, 0}, {{512, 512}, 1}};
    BucketId bucket;
    InProcessWorld world({.node_sizes = {1, 1}},
                         [&](ArenaLayout& layout) { bucket = layout.add_bucket("bucket", 1024); });
    std::atomic<int> wrong{0};
    run_world(world, [&](InProcessRank& self, int rank) {
        Collectives& all = *self.collectives;
        std::vector<float> errors(512);
        for (Generation g = 1; g <= 2; ++g) {
            all.await_free(bucket, g);
            std::ranges::fill(all.bucket(bucket), 0.3F);
            if (g == 1) all.bucket(bucket)[600] = std::numeric_limits<float>::infinity();
            all.post(bucket, g);
            all.reduce(bucket, g, 1.0F, owners, {WirePacking::kInt4, g, errors});
            all.await_reduced(bucket, g).for_each_in(
                owners[rank].range, [&](const Range&, std::span<const float> values) {
                    const auto infinite = std::ranges::count_if(
                        values, [](float value) { return !std::isfinite(value); });
                    // Only the block of element 600.
                    wrong += infinite != (g == 1 && rank == 1 ? 256 : 0);
                });
            all.release(bucket, g);
        }
    });
    CHECK(wrong == 0);
}

namespace {

float in_16_bits(WirePacking packing, float value) {
    const DType dtype = packing == WirePacking::kBf16 ? DType::kBF16 : DType::kF16;
    uint16_t half = 0;
    kernels::to_half(&value, &half, 1, dtype);
    kernels::from_half(&half, &value, 1, dtype);
    return value;
}

// Computes the formula: a host's sum times BEFORE is rounded if it travels; sums over hosts are
// multiplied by AFTER, and rounded if they travel too.
float sum_in_16_bits(const std::vector<int>& node_sizes, int64_t i, WirePacking packing, int owner,
                     bool for_all, float before, float after) {
    float sum = 0;
    int rank = 0;
    for (int node = 0; node < static_cast<int>(node_sizes.size()); ++node) {
        float host = gradient(rank++, i, 1);
        for (int local = 1; local < node_sizes[node]; ++local) host += gradient(rank++, i, 1);
        host *= before;
        if (node != owner) host = in_16_bits(packing, host);
        sum = node == 0 ? host : sum + host;
    }
    sum *= after;
    return for_all ? in_16_bits(packing, sum) : sum;
}

}  // namespace

namespace {

constexpr int64_t kHalfNumel = 3001;
const std::vector<Range> kExact = {{5, 100}, {700, 1}, {1500, 900}, {kHalfNumel - 32, 32}};

bool lies_exact(int64_t i) {
    return std::ranges::any_of(
        kExact, [&](const Range& range) { return i >= range.begin && i < range.end(); });
}

// Returns the sums of each host for a bucket that is reduced to owners_of() or, without OWNERS, to
// all.
std::vector<std::vector<float>> sums_in_16_bits(const std::vector<int>& node_sizes,
                                                WirePacking packing,
                                                std::span<const NodeRange> owners) {
    BucketId bucket;
    InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
        bucket = layout.add_bucket("bucket", kHalfNumel);
    });
    std::vector<std::vector<float>> sums(node_sizes.size());
    std::mutex mutex;
    run_world(world, [&](InProcessRank& self, int rank) {
        Collectives& all = *self.collectives;
        fill(all.bucket(bucket), rank, 1);
        all.post(bucket, 1);
        ReduceCoding coding{packing, 0, {}};
        coding.exact = kExact;
        coding.scale_before = 0.25F;
        all.reduce(bucket, 1, 2.0F, owners, coding);
        const ReducedParts parts = all.await_reduced(bucket, 1);
        std::vector<float> mine;
        parts.for_each_in({0, kHalfNumel}, [&](const Range&, std::span<const float> part) {
            mine.insert(mine.end(), part.begin(), part.end());
        });
        const std::lock_guard lock(mutex);
        sums[static_cast<size_t>(all.topology().node_rank)] = mine;
        all.release(bucket, 1);
    });
    return sums;
}

}  // namespace

TEST_CASE("sums in 16 bits for owners are those of the formula, exact ranges have all bits") {
    for (const std::vector<int>& node_sizes : kHosts)
        for (const WirePacking packing : {WirePacking::kBf16, WirePacking::kF16}) {
            CAPTURE(world_name(node_sizes), static_cast<int>(packing));
            const std::vector<NodeRange> owners =
                owners_of(kHalfNumel, static_cast<int>(node_sizes.size()));
            const std::vector<std::vector<float>> sums =
                sums_in_16_bits(node_sizes, packing, owners);
            int64_t wrong = 0, inexact = 0;
            for (const NodeRange& owned : owners)
                for (int64_t i = owned.range.begin; i < owned.range.end(); ++i)
                    for (size_t node = 0; node < sums.size(); ++node) {
                        const bool for_all = owned.node == kEveryNode;
                        if (!for_all && owned.node != static_cast<int>(node)) continue;
                        const float all_bits = expected(node_sizes, i, 1, 0.5F);
                        const float formula = sum_in_16_bits(
                            node_sizes, i, packing, static_cast<int>(node), false, 0.25F, 2.0F);
                        wrong += sums[node][size_t(i)] !=
                                 (for_all || lies_exact(i) ? all_bits : formula);
                        inexact += sums[node][size_t(i)] != all_bits;
                    }
            CHECK(wrong == 0);
            CHECK(inexact > kHalfNumel / 4);
        }
}

TEST_CASE("sums in 16 bits for all hosts are those of the formula and the same on each") {
    for (const std::vector<int>& node_sizes : kHosts)
        for (const WirePacking packing : {WirePacking::kBf16, WirePacking::kF16}) {
            CAPTURE(world_name(node_sizes), static_cast<int>(packing));
            const std::vector<std::vector<float>> sums = sums_in_16_bits(node_sizes, packing, {});
            int64_t wrong = 0, inexact = 0;
            for (int64_t i = 0; i < kHalfNumel; ++i) {
                const float sum = sums[0][size_t(i)], all_bits = expected(node_sizes, i, 1, 0.5F);
                // Any host may own an element.
                bool fits = lies_exact(i) && sum == all_bits;
                for (int owner = 0; owner < std::ssize(sums) && !lies_exact(i); ++owner)
                    fits = fits ||
                           sum == sum_in_16_bits(node_sizes, i, packing, owner, true, 0.25F, 2.0F);
                for (const std::vector<float>& host : sums) fits = fits && host[size_t(i)] == sum;
                wrong += !fits;
                inexact += sum != all_bits;
            }
            CHECK(wrong == 0);
            CHECK(inexact > kHalfNumel / 4);
        }
}

TEST_CASE("sums of a host that fp16 cannot hold fit once they are divided before they travel") {
    BucketId bucket;
    for (const float before : {1.0F, 0.25F}) {
        std::atomic<int64_t> infinite{0}, right{0};
        InProcessWorld world({.node_sizes = {2, 2}}, [&](ArenaLayout& layout) {
            bucket = layout.add_bucket("bucket", 64);
        });
        run_world(world, [&](InProcessRank& self, int) {
            Collectives& all = *self.collectives;
            std::ranges::fill(all.bucket(bucket), 40'000.0F);
            all.post(bucket, 1);
            ReduceCoding coding{WirePacking::kF16, 0, {}};
            coding.scale_before = before;
            all.reduce(bucket, 1, 0.25F / before, {}, coding);
            const ReducedParts parts = all.await_reduced(bucket, 1);
            parts.for_each_in({0, 64}, [&](const Range&, std::span<const float> values) {
                for (const float value : values) {
                    infinite += std::isinf(value);
                    right += value == 40'000.0F;
                }
            });
            all.release(bucket, 1);
        });
        CHECK(infinite == (before < 1 ? 0 : 4 * 64));
        CHECK(right == (before < 1 ? 4 * 64 : 0));
    }
}
