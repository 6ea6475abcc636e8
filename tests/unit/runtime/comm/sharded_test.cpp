// Collectives of sharded states over simulated hosts: reduction to owners, gather, buckets that
// share memory.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "runtime/comm/collectives.h"
#include "runtime/comm/host_exchange.h"
#include "support/catch.h"
#include "support/ordered_sums.h"
#include "support/world.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::testing;
using namespace std::chrono_literals;

namespace {

const std::vector<std::vector<int>> kShardedWorlds = {
    {1},       {2},          {5},       {8},       {1, 1},         {3, 1},
    {2, 1, 2}, {1, 1, 1, 1}, {2, 2, 2}, {3, 2, 4}, {1, 1, 1, 1, 1}};

// Returns the number of elements by owner. The last entry counts the elements of every node.
std::vector<int64_t> numel_by_node(const std::vector<NodeRange>& owners, size_t hosts) {
    std::vector<int64_t> numel(hosts + 1, 0);
    for (const NodeRange& owned : owners)
        numel[owned.node == kEveryNode ? hosts : static_cast<size_t>(owned.node)] +=
            owned.range.numel;
    return numel;
}

// A link that brings zeros, and is lost in its second transfer.
class LostLink final : public Link {
  public:
    void abort(std::string_view) override {}

  protected:
    void run(const std::vector<LinkSend>&, const std::vector<LinkReceive>& receives) override {
        if (++transfers_ == 2) throw Error(ExitCode::kPeerLost, "node 1 was lost");
        for (const LinkReceive& receive : receives)
            std::memset(receive.bytes.data(), 0, receive.bytes.size());
    }

  private:
    int transfers_ = 0;
};

}  // namespace

TEST_CASE("Owners get the bits of the stated order, and a gather brings them to every host") {
    for (const std::vector<int>& node_sizes : kShardedWorlds) {
        CAPTURE(world_name(node_sizes));
        const std::vector<int64_t> numels = {1, 3, 16, 33, 1001};
        std::vector<BucketId> buckets;
        InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
            buckets.clear();
            for (const int64_t numel : numels)
                buckets.push_back(layout.add_bucket("bucket" + std::to_string(numel), numel));
        });
        const auto hosts = static_cast<int>(node_sizes.size());
        std::atomic<int64_t> wrong{0};
        run_world(world, [&](InProcessRank& self, int) {
            for (Generation g = 1; g <= 12; ++g) {
                for (size_t b = 0; b < buckets.size(); ++b)
                    wrong +=
                        wrong_in_sharded_round({*self.collectives, *self.group, *self.arena},
                                               buckets[b], g, random_owners(numels[b], hosts, g));
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("One node, no node or all nodes may own a whole bucket") {
    for (const std::vector<int>& node_sizes : kShardedWorlds) {
        CAPTURE(world_name(node_sizes));
        constexpr int64_t kNumel = 100;
        BucketId bucket;
        InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
            bucket = layout.add_bucket("bucket", kNumel);
        });
        const auto hosts = static_cast<int>(node_sizes.size());
        std::atomic<int64_t> wrong{0};
        run_world(world, [&](InProcessRank& self, int) {
            Generation g = 0;
            for (int owner = kEveryNode; owner < hosts; ++owner)
                wrong += wrong_in_sharded_round({*self.collectives, *self.group, *self.arena},
                                                bucket, ++g, {{{0, kNumel}, owner}});
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("A bucket of several chunks has the same bits by owners as by all") {
    constexpr int64_t kNumel = (5 << 19) + 7;  // two and a half chunks in one stream
    for (const std::vector<int>& node_sizes : std::vector<std::vector<int>>{{1, 1}, {2, 1, 2}}) {
        CAPTURE(world_name(node_sizes));
        BucketId by_owners, by_all;
        InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
            by_owners = layout.add_bucket("by owners", kNumel);
            by_all = layout.add_bucket("by all", kNumel);
        });
        constexpr int64_t kEvery = (3 << 19) + 3;
        const std::vector<std::vector<NodeRange>> cases = {
            {{{0, kNumel}, 1}},
            {{{0, kNumel}, kEveryNode}},
            {{{0, 1001}, 1},
             {{1001, kEvery}, kEveryNode},
             {{1001 + kEvery, kNumel - 1001 - kEvery}, 0}}};
        std::atomic<int64_t> wrong{0};
        run_world(world, [&](InProcessRank& self, int rank) {
            Collectives& all = *self.collectives;
            Generation g = 0;
            for (const std::vector<NodeRange>& owners : cases) {
                ++g;
                for (const BucketId bucket : {by_owners, by_all}) {
                    all.await_free(bucket, g);
                    fill(all.bucket(bucket), rank, g);
                    all.post(bucket, g);
                    all.reduce(bucket, g, 0.2F,
                               bucket.index == by_all.index ? std::span<const NodeRange>{}
                                                            : std::span(owners));
                }
                std::vector<float> whole(static_cast<size_t>(kNumel));
                all.await_reduced(by_all, g).copy_to(whole);
                const ReducedParts mine = all.await_reduced(by_owners, g);
                for (const NodeRange& owned : owners) {
                    if (owned.node != kEveryNode && owned.node != all.topology().node_rank)
                        continue;
                    mine.for_each_in(
                        owned.range, [&](const Range& piece, std::span<const float> values) {
                            wrong += std::memcmp(values.data(), whole.data() + piece.begin,
                                                 values.size_bytes()) != 0;
                        });
                }
                all.release(by_all, g);
                all.release(by_owners, g);
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("Reduction to owners and gather move exactly what the owners need") {
    for (const std::vector<int>& node_sizes : kShardedWorlds) {
        CAPTURE(world_name(node_sizes));
        constexpr int64_t kNumel = 1001;
        const size_t hosts = node_sizes.size();
        const auto other_hosts = static_cast<int64_t>(hosts) - 1;
        for (uint32_t seed = 0; seed < 10; ++seed) {
            const std::vector<NodeRange> owners =
                random_owners(kNumel, static_cast<int>(hosts), seed);
            const std::vector<int64_t> numel = numel_by_node(owners, hosts);
            // The bytes of each host, over all its bridges.
            std::vector<std::atomic<int64_t>> reduce_sent(hosts), reduce_received(hosts);
            std::vector<std::atomic<int64_t>> gather_sent(hosts), gather_received(hosts);
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
                all.reduce(bucket, 1, 1.0F, owners);
                const Traffic reduced = all.traffic().all();
                reduce_sent[node] += reduced.sent.value;
                reduce_received[node] += reduced.received.value;
                all.gather_ranges(self.arena->shared(weights), 2, owners);
                gather_sent[node] += all.traffic().all().sent.value - reduced.sent.value;
                gather_received[node] +=
                    all.traffic().all().received.value - reduced.received.value;
            });
            for (size_t node = 0; node < hosts; ++node) {
                const int64_t every = numel[hosts];
                const int64_t others = kNumel - every - numel[node];
                CHECK(reduce_sent[node] == (others + every * other_hosts) * 4);
                CHECK(reduce_received[node] == (numel[node] + every) * other_hosts * 4);
                CHECK(gather_sent[node] == numel[node] * other_hosts * 2);
                CHECK(gather_received[node] == others * 2);
            }
        }
    }
}

TEST_CASE("A gather leaves what every host has, and works with elements of 2 bytes") {
    for (const std::vector<int>& node_sizes : kShardedWorlds) {
        CAPTURE(world_name(node_sizes));
        constexpr int64_t kNumel = 771;
        SliceId weights;
        InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
            weights = layout.add_shared("weights", {kNumel * 2});
        });
        std::atomic<int> wrong{0};
        run_world(world, [&](InProcessRank& self, int) {
            const Topology& topology = self.collectives->topology();
            const std::span<std::byte> bytes = self.arena->shared(weights);
            auto* const values = reinterpret_cast<uint16_t*>(bytes.data());
            // Each node writes its own number and the round everywhere. Afterwards, elements that
            // it does not own must have their owner's number.
            const auto value = [](int node, int round) {
                return static_cast<uint16_t>(node * 256 + round);
            };
            for (int round = 0; round < 20; ++round) {
                const std::vector<NodeRange> owners =
                    random_owners(kNumel, topology.node_count(), static_cast<uint32_t>(round));
                self.group->barrier();
                if (topology.local_rank == 0)
                    std::fill_n(values, kNumel, value(topology.node_rank, round));
                self.group->barrier();
                self.collectives->gather_ranges(bytes, 2, owners);
                self.group->barrier();
                for (const NodeRange& owned : owners) {
                    const int node = owned.node == kEveryNode ? topology.node_rank : owned.node;
                    wrong += std::count(values + owned.range.begin, values + owned.range.end(),
                                        value(node, round)) != owned.range.numel;
                }
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("Buckets of one step use the same memory one after the other") {
    for (const std::vector<int>& node_sizes :
         std::vector<std::vector<int>>{{3}, {2, 1}, {2, 1, 2}}) {
        CAPTURE(world_name(node_sizes));
        constexpr int64_t kNumel = 777;
        constexpr Generation kSteps = 10;
        std::vector<BucketId> buckets;
        InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
            const SliceId shared = layout.add_per_rank("shared", {(kNumel + 32) * 4});
            buckets.clear();
            for (int b = 0; b < 3; ++b)
                buckets.push_back(
                    layout.add_bucket("bucket" + std::to_string(b), kNumel, shared, b * 16));
        });
        const auto hosts = static_cast<int>(node_sizes.size());
        std::atomic<int> wrong{0};
        run_world(world, [&](InProcessRank& self, int rank) {
            Collectives& all = *self.collectives;
            // Each bucket has other gradients, so that it is noticed if one reads another one's.
            const auto tag = [](Generation step, size_t b) {
                return step * 10 + static_cast<uint32_t>(b);
            };
            std::thread communication([&] {
                for (Generation step = 1; step <= kSteps; ++step) {
                    for (size_t b = 0; b < buckets.size(); ++b) {
                        const SignalId posted = self.arena->layout().bucket(buckets[b]).posted;
                        self.group->await(posted, self.group->local_rank(), step);
                        const std::vector<NodeRange> owners =
                            random_owners(kNumel, hosts, tag(step, b));
                        all.reduce(buckets[b], step, 1.0F, owners);
                        const ReducedParts parts = all.await_reduced(buckets[b], step);
                        for (const NodeRange& owned : owners) {
                            if (owned.node != kEveryNode && owned.node != all.topology().node_rank)
                                continue;
                            int64_t at = owned.range.begin;
                            parts.for_each_in(
                                owned.range, [&](const Range&, std::span<const float> values) {
                                    for (const float sum : values)
                                        wrong += !same_bits(
                                            sum, expected(node_sizes, at++, tag(step, b), 1.0F));
                                });
                        }
                        all.release(buckets[b], step);
                    }
                }
            });
            for (Generation step = 1; step <= kSteps; ++step) {
                for (size_t b = 0; b < buckets.size(); ++b) {
                    const size_t before = (b + buckets.size() - 1) % buckets.size();
                    // The previous bucket was last used in this step, or, for the first bucket, in
                    // the step before.
                    const Generation last = b == 0 ? step - 1 : step;
                    all.await_free(buckets[before], last + 1);
                    fill(all.bucket(buckets[b]), rank, tag(step, b));
                    all.post(buckets[b], step);
                }
            }
            communication.join();
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("A host that does not come to a gather or a reduction to owners ends the others") {
    for (const bool gather : {false, true}) {
        CAPTURE(gather);
        BucketId bucket;
        InProcessWorld world(
            {.node_sizes = {2, 1, 2}, .time_limit = 200ms},
            [&](ArenaLayout& layout) { bucket = layout.add_bucket("bucket", 100); });
        const auto ends = outcomes(world, [&](InProcessRank& self, int rank) {
            Collectives& all = *self.collectives;
            if (rank == 2) return;
            const std::vector<NodeRange> owners = {{{0, 50}, 1}, {{50, 50}, 0}};
            all.post(bucket, 1);
            if (gather) {
                all.gather_ranges(std::as_writable_bytes(self.arena->bucket_of_rank(bucket, 0)), 4,
                                  owners);
                self.group->barrier();
            } else {
                all.reduce(bucket, 1, 1.0F, owners);
                (void)all.await_reduced(bucket, 1);
            }
        });
        for (const size_t rank : {size_t{0}, size_t{1}, size_t{3}, size_t{4}}) {
            REQUIRE(ends[rank]);
            CHECK((ends[rank]->code() == ExitCode::kHang ||
                   ends[rank]->code() == ExitCode::kPeerLost));
        }
    }
}

TEST_CASE("A link that is lost between two chunks ends the reduction, after the first was added") {
    constexpr size_t kChunkNumel = 1 << 20;
    std::vector<float> own(kChunkNumel + 5, 1.0F), other(3, 1.0F);
    HostExchange exchange(Topology::of_rank({1, 1}, 0), std::make_unique<LostLink>());
    CHECK_THROWS_AS(exchange.reduce_to_owners({{std::span(own)}, {std::span(other)}}, 0.5F), Error);
    CHECK(std::count(own.begin(), own.begin() + kChunkNumel, 0.5F) == kChunkNumel);
    CHECK(std::count(own.begin() + kChunkNumel, own.end(), 1.0F) == 5);
}
