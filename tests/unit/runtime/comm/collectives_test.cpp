#include "runtime/comm/collectives.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/hang.h"
#include "support/ordered_sums.h"
#include "support/world.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::testing;
using namespace std::chrono_literals;

namespace {

const std::vector<std::vector<int>> kWorlds = {
    {1}, {2}, {3}, {5}, {8}, {2, 1}, {1, 2}, {2, 2}, {1, 1, 1}, {3, 1, 1}, {3, 2, 4}};

}  // namespace

TEST_CASE("The reference notices another order of sums") {
    int differing = 0;
    for (int64_t i = 0; i < 1000; ++i) {
        const float forward = gradient(0, i, 1) + gradient(1, i, 1) + gradient(2, i, 1);
        const float backward = gradient(2, i, 1) + gradient(1, i, 1) + gradient(0, i, 1);
        differing += forward != backward;
    }
    CHECK(differing > 100);
}

TEST_CASE("A reduced bucket has the bits of the stated order on every rank of every world") {
    const std::vector<int64_t> numels = {1, 3, 7, 16, 33, 1001, 4099};
    for (const std::vector<int>& node_sizes : kWorlds) {
        CAPTURE(world_name(node_sizes));
        std::vector<BucketId> buckets;
        InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
            buckets.clear();
            for (const int64_t numel : numels)
                buckets.push_back(layout.add_bucket("bucket" + std::to_string(numel), numel));
        });
        const float scale = 1.0F / static_cast<float>(world.world_size());
        std::atomic<int> wrong{0};
        run_world(world, [&](InProcessRank& self, int rank) {
            Collectives& all = *self.collectives;
            for (Generation generation = 1; generation <= 4; ++generation) {
                for (const BucketId bucket : buckets) {
                    all.await_free(bucket, generation);
                    fill(all.bucket(bucket), rank, generation);
                    all.post(bucket, generation);
                }
                for (const BucketId bucket : buckets) all.reduce(bucket, generation, scale);
                for (size_t b = 0; b < buckets.size(); ++b) {
                    const ReducedParts parts = all.await_reduced(buckets[b], generation);
                    std::vector<float> whole(static_cast<size_t>(numels[b]), NAN);
                    parts.copy_to(whole);
                    for (int64_t i = 0; i < numels[b]; ++i) {
                        if (!same_bits(whole[i], expected(node_sizes, i, generation, scale)))
                            ++wrong;
                    }
                    all.release(buckets[b], generation);
                }
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE(
    "Compute and communication lanes of each rank reduce several buckets while others are filled") {
    for (const std::vector<int>& node_sizes :
         std::vector<std::vector<int>>{{3}, {2, 1}, {3, 1, 1}}) {
        CAPTURE(world_name(node_sizes));
        constexpr int kBuckets = 3;
        constexpr int64_t kNumel = 777;
        constexpr Generation kGenerations = 20;
        std::vector<BucketId> buckets;
        InProcessWorld world({.node_sizes = node_sizes}, [&](ArenaLayout& layout) {
            buckets.clear();
            for (int b = 0; b < kBuckets; ++b)
                buckets.push_back(layout.add_bucket("bucket" + std::to_string(b), kNumel));
        });
        std::atomic<int> wrong{0};
        run_world(world, [&](InProcessRank& self, int rank) {
            Collectives& all = *self.collectives;
            std::thread communication([&] {
                for (Generation g = 1; g <= kGenerations; ++g) {
                    for (const BucketId bucket : buckets) {
                        // The executor starts Reduce after the rank's own Post.
                        const SignalId posted = self.arena->layout().bucket(bucket).posted;
                        self.group->await(posted, self.group->local_rank(), g);
                        all.reduce(bucket, g, 1.0F);
                    }
                }
            });
            for (Generation g = 1; g <= kGenerations; ++g) {
                for (const BucketId bucket : buckets) {
                    all.await_free(bucket, g);
                    fill(all.bucket(bucket), rank, g);
                    all.post(bucket, g);
                }
                for (const BucketId bucket : buckets) {
                    int64_t seen = 0;
                    all.await_reduced(bucket, g).for_each_in(
                        {5, 700}, [&](const Range& range, std::span<const float> values) {
                            for (int64_t i = 0; i < range.numel; ++i) {
                                const float want = expected(node_sizes, range.begin + i, g, 1.0F);
                                wrong += !same_bits(values[i], want);
                            }
                            wrong += range.begin != 5 + seen;
                            seen += range.numel;
                        });
                    wrong += seen != 700;
                    all.release(bucket, g);
                }
            }
            communication.join();
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("Sources of a bucket are every local rank's own gradients, in order") {
    BucketId bucket;
    InProcessWorld world({.node_sizes = {3}},
                         [&](ArenaLayout& layout) { bucket = layout.add_bucket("bucket", 50); });
    std::atomic<int> wrong{0};
    run_world(world, [&](InProcessRank& self, int rank) {
        Collectives& all = *self.collectives;
        for (Generation g = 1; g <= 10; ++g) {
            all.await_free(bucket, g);
            fill(all.bucket(bucket), rank, g);
            all.post(bucket, g);
            const std::vector<const float*> sources = all.await_sources(bucket, g);
            wrong += sources.size() != 3;
            for (int source = 0; source < 3; ++source) {
                for (int64_t i = 0; i < 50; ++i)
                    wrong += sources[source][i] != gradient(source, i, g);
            }
            all.release(bucket, g);
        }
    });
    CHECK(wrong == 0);
}

TEST_CASE("A bridge sends two (H - 1) / H of its stripe, the others and single hosts nothing") {
    // Each numel divides into whole cache lines over all hosts and bridges.
    struct Row {
        std::vector<int> node_sizes;
        int64_t numel;
    };
    const std::vector<Row> rows = {
        {{2}, 960}, {{1, 1}, 960}, {{2, 1}, 960}, {{2, 3, 2}, 960}, {{4, 4}, 1280}};
    for (const Row& row : rows) {
        CAPTURE(world_name(row.node_sizes));
        BucketId bucket;
        InProcessWorld world({.node_sizes = row.node_sizes}, [&](ArenaLayout& layout) {
            bucket = layout.add_bucket("bucket", row.numel);
        });
        const int64_t hosts = std::ssize(row.node_sizes);
        std::vector<Traffic> traffic(static_cast<size_t>(world.world_size()));
        std::vector<int64_t> wanted(static_cast<size_t>(world.world_size()));
        run_world(world, [&](InProcessRank& self, int rank) {
            Collectives& all = *self.collectives;
            for (Generation g = 1; g <= 3; ++g) {
                all.post(bucket, g);
                all.reduce(bucket, g, 1.0F);
                (void)all.await_reduced(bucket, g);
            }
            const Topology& topology = all.topology();
            traffic[rank] = all.traffic().all();
            if (topology.is_bridge())
                wanted[rank] =
                    3 * 2 * (hosts - 1) * (row.numel / topology.bridge_count()) * 4 / hosts;
        });
        for (size_t rank = 0; rank < traffic.size(); ++rank) {
            CHECK(traffic[rank].sent.value == wanted[rank]);
            CHECK(traffic[rank].received.value == wanted[rank]);
        }
    }
}

TEST_CASE("Broadcasts bring rank 0's bytes to every rank, whatever their length") {
    for (const std::vector<int>& node_sizes : kWorlds) {
        CAPTURE(world_name(node_sizes));
        InProcessWorld world({.node_sizes = node_sizes}, [](ArenaLayout&) {});
        std::atomic<int> wrong{0};
        run_world(world, [&](InProcessRank& self, int rank) {
            for (const size_t length : {size_t{0}, size_t{1}, size_t{1000}, size_t{1'000'003}}) {
                std::vector<std::byte> bytes(length, static_cast<std::byte>(rank + 1));
                self.collectives->broadcast(bytes);
                for (const std::byte byte : bytes) wrong += byte != std::byte{1};
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("Gathered strings come by rank, and doubles are added in rank order") {
    for (const std::vector<int>& node_sizes : kWorlds) {
        CAPTURE(world_name(node_sizes));
        InProcessWorld world({.node_sizes = node_sizes}, [](ArenaLayout&) {});
        const auto term = [](int rank, int i) {
            return std::ldexp(1.0 / (rank + 3), (rank * 37 + i * 11) % 60 - 30);
        };
        std::atomic<int> wrong{0};
        run_world(world, [&](InProcessRank& self, int rank) {
            for (int round = 0; round < 5; ++round) {
                const auto text_of = [&](int r) {
                    return std::string(static_cast<size_t>((r + round) % 4) * 30'000,
                                       static_cast<char>('a' + r));
                };
                const std::vector<std::string> all = self.collectives->all_gather(text_of(rank));
                wrong += std::ssize(all) != world.world_size();
                for (int r = 0; r < world.world_size(); ++r) wrong += all[r] != text_of(r);
                std::vector<double> values = {term(rank, 0), term(rank, 1), term(rank, 2)};
                self.collectives->sum_ordered(values);
                for (int i = 0; i < 3; ++i) {
                    double sum = 0;
                    for (int r = 0; r < world.world_size(); ++r) sum += term(r, i);
                    wrong += values[i] != sum;
                }
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("Nobody leaves the barrier of several hosts before all have come") {
    InProcessWorld world({.node_sizes = {3, 1, 2}}, [](ArenaLayout&) {});
    std::atomic<int> inside{0};
    std::atomic<int> wrong{0};
    run_world(world, [&](InProcessRank& self, int) {
        for (int round = 1; round <= 30; ++round) {
            ++inside;
            self.collectives->barrier();
            wrong += inside < 6 * round;
            self.collectives->barrier();
        }
    });
    CHECK(wrong == 0);
}

TEST_CASE("A rank that never posts ends every other rank of every host in bounded time") {
    const std::vector<std::vector<int>> shapes = {{2}, {5}, {2, 1}, {1, 2}, {3, 1, 1}};
    const auto run = [](const std::vector<int>& node_sizes) {
        BucketId bucket;
        // The limit also applies to entering, so it leaves the threads time to start.
        InProcessWorld world(
            {.node_sizes = node_sizes, .time_limit = 700ms},
            [&](ArenaLayout& layout) { bucket = layout.add_bucket("bucket", 100); });
        return outcomes(world, [&](InProcessRank& self, int rank) {
            if (rank == 0) return;
            self.collectives->post(bucket, 1);
            self.collectives->reduce(bucket, 1, 1.0F);
            (void)self.collectives->await_reduced(bucket, 1);
        });
    };
    // All worlds wait for their limits at once.
    std::vector<std::future<std::vector<std::optional<Error>>>> worlds;
    for (const std::vector<int>& node_sizes : shapes)
        worlds.push_back(std::async(std::launch::async, run, node_sizes));
    for (size_t i = 0; i < shapes.size(); ++i) {
        CAPTURE(world_name(shapes[i]));
        const std::vector<std::optional<Error>> ends = worlds[i].get();
        CHECK_FALSE(ends[0]);
        for (size_t rank = 1; rank < ends.size(); ++rank) {
            REQUIRE(ends[rank]);
            CHECK((ends[rank]->code() == ExitCode::kHang ||
                   ends[rank]->code() == ExitCode::kPeerLost));
        }
    }
}

TEST_CASE("A failed rank's words reach every rank of every host") {
    BucketId bucket;
    InProcessWorld world({.node_sizes = {2, 1}, .time_limit = test::kHangTime},
                         [&](ArenaLayout& layout) { bucket = layout.add_bucket("bucket", 100); });
    const auto ends = outcomes(world, [&](InProcessRank& self, int rank) {
        if (rank == 0) {
            std::this_thread::sleep_for(50ms);
            self.collectives->poison("rank 0: segment 3 (h.1.mlp): shapes differ");
            return;
        }
        self.collectives->post(bucket, 1);
        self.collectives->reduce(bucket, 1, 1.0F);
        (void)self.collectives->await_reduced(bucket, 1);
    });
    for (size_t rank : {size_t{1}, size_t{2}}) {
        REQUIRE(ends[rank]);
        CHECK(ends[rank]->code() == ExitCode::kPeerLost);
        CHECK(std::string(ends[rank]->what()) == "rank 0: segment 3 (h.1.mlp): shapes differ");
    }
}

TEST_CASE("A bridge that waits for another host hears of a failure on its own") {
    BucketId bucket;
    InProcessWorld world({.node_sizes = {2, 1}, .time_limit = test::kHangTime},
                         [&](ArenaLayout& layout) { bucket = layout.add_bucket("bucket", 100); });
    std::atomic<bool> over{false};
    const auto ends = outcomes(world, [&](InProcessRank& self, int rank) {
        if (rank == 2) {
            while (!over) std::this_thread::sleep_for(1ms);  // alive, but never posts
            return;
        }
        self.collectives->post(bucket, 1);
        if (rank == 0) {
            try {
                self.collectives->reduce(bucket, 1, 1.0F);
            } catch (const Error&) {
                over = true;
                throw;
            }
            return;
        }
        self.collectives->reduce(bucket, 1, 1.0F);  // sums its part; the bridge does the rest
        std::this_thread::sleep_for(50ms);
        self.group->poison("rank 1: out of memory");
    });
    REQUIRE(ends[0]);
    CHECK(ends[0]->code() == ExitCode::kPeerLost);
    CHECK(std::string(ends[0]->what()) == "rank 1: out of memory");
}
