// The verdict on pairs of GPUs, for made-up rates.
#include "health/health_verdict.h"
#include "support/catch.h"

namespace dslaunch {

using namespace health;

namespace {

// Two hosts with RANKS GPUs each: 400 GB/s within a host, 40 GB/s between them.
struct Gpus {
    int ranks = 4;
    GpuPlaces places;
    std::vector<GpuPairSample> pairs;

    explicit Gpus(int ranks_of_host) : ranks(2 * ranks_of_host) {
        places.host_names = {"n0", "n1"};
        for (int rank = 0; rank < ranks; ++rank)
            places.node_of_rank.push_back(rank / ranks_of_host);
        for (int a = 0; a < ranks; ++a)
            for (int b = a + 1; b < ranks; ++b)
                pairs.push_back(
                    {a, b,
                     a / ranks_of_host == b / ranks_of_host ? 400'000'000'000 : 40'000'000'000});
    }
    void slow_down(int a, int b) {
        for (GpuPairSample& pair : pairs)
            if (pair.first == a && pair.second == b) pair.bytes_per_second /= 3;
    }
    [[nodiscard]] std::vector<HealthFinding> judge() const {
        return judge_gpu_pairs(pairs, places);
    }
};

}  // namespace

TEST_CASE("pairs are compared with their own kind, and equal ones are healthy") {
    CHECK(Gpus(1).judge().empty());
    CHECK(Gpus(4).judge().empty());
    CHECK(judge_gpu_pairs({}, {}).empty());
    // Two pairs are too few to tell which one is slow.
    Gpus two(1);
    two.pairs = {{0, 1, 1}};
    CHECK(two.judge().empty());
}

TEST_CASE("one slow pair is named by its ranks, hosts and figures") {
    Gpus gpus(4);
    gpus.slow_down(1, 6);
    const std::vector<HealthFinding> found = gpus.judge();
    REQUIRE(found.size() == 1);
    CHECK(found[0].subject == HealthFinding::Subject::kLink);
    CHECK(found[0].nodes == std::vector<int64_t>{0, 1});
    CHECK(found[0].text ==
          "between the GPU of rank 1 on n0 and the GPU of rank 6 on n1: 13.33 GB/s, but other "
          "pairs of GPUs between hosts reach 40.00 GB/s");
}

TEST_CASE("a GPU that is slow with all others is blamed in place of its pairs") {
    Gpus gpus(4);
    for (int other = 0; other < 8; ++other) gpus.slow_down(std::min(2, other), std::max(2, other));
    const std::vector<HealthFinding> found = gpus.judge();
    REQUIRE(found.size() == 1);
    CHECK(found[0].rank == 2);
    CHECK(found[0].text ==
          "the GPU of rank 2 on n0: its transfers with each of the 7 other GPUs are slow, at less "
          "than half of the rate of other pairs");
    gpus.slow_down(4, 5);
    CHECK(gpus.judge().size() == 2);
}

}  // namespace dslaunch
