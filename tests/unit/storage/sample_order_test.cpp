#include "storage/tokens/sample_order.h"

#include <algorithm>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

// Returns true if positions [first, first + n) take each sample of n once.
bool takes_each_once(const SampleOrder& order, int64_t first, int64_t n) {
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
        const int64_t sample = order.sample_at(first + i);
        if (sample < 0 || sample >= n || seen[sample]) return false;
        seen[sample] = true;
    }
    return true;
}

}  // namespace

TEST_CASE("each epoch takes each sample once, for every sample count up to 2000") {
    for (int64_t n = 1; n <= 2000; ++n) {
        const SampleOrder order({.sample_count = n, .seed = 7, .shuffle = true});
        REQUIRE(takes_each_once(order, 0, n));
        REQUIRE(takes_each_once(order, 3 * n, n));
    }
    const SampleOrder large({.sample_count = 1'000'003, .seed = 1, .shuffle = true});
    REQUIRE(takes_each_once(large, 0, 1'000'003));
}

TEST_CASE("a thousand million samples need no table and stay in range without repeats") {
    constexpr int64_t n = 1'000'000'000;
    const SampleOrder order({.sample_count = n, .seed = 5, .shuffle = true});
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < 20'000; ++i) samples.push_back(order.sample_at(n - 20'000 + i));
    std::sort(samples.begin(), samples.end());
    REQUIRE(samples.front() >= 0);
    REQUIRE(samples.back() < n);
    REQUIRE(std::adjacent_find(samples.begin(), samples.end()) == samples.end());
}

TEST_CASE("seeds and epochs give different orders, and the same ones the same order") {
    const SampleOrder a({.sample_count = 1000, .seed = 1, .shuffle = true});
    const SampleOrder same({.sample_count = 1000, .seed = 1, .shuffle = true});
    const SampleOrder b({.sample_count = 1000, .seed = 2, .shuffle = true});
    int moved_by_seed = 0;
    int moved_by_epoch = 0;
    int moved_at_all = 0;
    for (int64_t i = 0; i < 1000; ++i) {
        REQUIRE(a.sample_at(i) == same.sample_at(i));
        moved_by_seed += a.sample_at(i) != b.sample_at(i);
        moved_by_epoch += a.sample_at(i) != a.sample_at(1000 + i);
        moved_at_all += a.sample_at(i) != i;
    }
    // Random permutations agree in one place on average; 20 is far out in that Poisson tail.
    REQUIRE(moved_by_seed > 980);
    REQUIRE(moved_by_epoch > 980);
    REQUIRE(moved_at_all > 980);
}

TEST_CASE("without shuffling, samples follow their position and wrap around") {
    const SampleOrder order({.sample_count = 10, .seed = 1, .shuffle = false});
    const BatchPlace place{
        .step = 2, .micro_step = 1, .micro_steps = 2, .rank = 2, .ranks = 3, .row = 3, .rows = 4};
    REQUIRE(position_of(place) == ((2 * 2 + 1) * 3 + 2) * 4 + 3);
    REQUIRE(order.sample_at(position_of(place)) == 1);
}

TEST_CASE("the rows of a step are the same for every way to split them over ranks") {
    for (const int64_t ranks : {1, 2, 3, 4, 6, 12}) {
        int64_t expected = 36;
        for (int64_t rank = 0; rank < ranks; ++rank)
            for (int64_t row = 0; row < 12 / ranks; ++row)
                REQUIRE(position_of({.step = 3,
                                     .rank = rank,
                                     .ranks = ranks,
                                     .row = row,
                                     .rows = 12 / ranks}) == expected++);
    }
}

TEST_CASE("sample counts and the held-out split are exact") {
    REQUIRE(token_sample_count(0, 4) == 0);
    REQUIRE(token_sample_count(1, 4) == 0);
    REQUIRE(token_sample_count(4, 4) == 0);
    REQUIRE(token_sample_count(5, 4) == 1);
    REQUIRE(token_sample_count(9, 4) == 2);
    REQUIRE(split_samples(10, 0).eval == 0);
    REQUIRE(split_samples(10, 0.25).train == 8);
    REQUIRE(split_samples(10, 0.25).eval == 2);
}
