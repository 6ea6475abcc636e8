#include "plan/offload/swap_cache.h"

#include <random>

#include "support/catch.h"

namespace dslaunch {

using namespace plan;
namespace {

// N chunks updated one after the other, each of 100 bytes to read and 300 to write.
SwapTrace cycle(int n) {
    SwapTrace trace;
    for (int c = 0; c < n; ++c) {
        trace.uses.push_back({c, true});
        trace.traffic.push_back({10, 100, 300});
    }
    return trace;
}

void check(const SwapTraffic& found, double hits, double misses) {
    CHECK(found.uses == Approx(hits + misses));
    CHECK(found.hits == Approx(hits).margin(1e-9));
    CHECK(found.read_bytes == Approx(100 * misses).margin(1e-9));
    CHECK(found.written_bytes == Approx(300 * misses).margin(1e-9));
}

}  // namespace

TEST_CASE("chunks in a circle: rules that look back hit nothing, Belady (k-1)/(n-1)") {
    for (const int n : {3, 9, 17, 33, 64})
        for (int k = 1; k < n; k += 1 + k / 2) {
            INFO(n << " chunks, " << k << " buffers");
            for (const EvictionRule rule :
                 {EvictionRule::kLru, EvictionRule::kFifo, EvictionRule::kLfu})
                check(simulate_swaps(cycle(n), rule, k), 0, n);
            const double hits = static_cast<double>(n) * (k - 1) / (n - 1);
            check(simulate_swaps(cycle(n), EvictionRule::kBelady, k), hits, n - hits);
        }
}

TEST_CASE("what fits into the buffers is neither read nor written") {
    for (const int n : {1, 5, 12})
        for (const EvictionRule rule : kEvictionRules)
            check(simulate_swaps(cycle(n), rule, n + 2), n, 0);
    CHECK(simulate_swaps({}, EvictionRule::kLru, 4).uses == 0);
}

TEST_CASE("a gather takes what a buffer holds, and no buffer where none does") {
    // Chunk 0 is gathered twice around its update, chunk 1 only gathered.
    SwapTrace trace;
    trace.uses = {{0, false}, {1, false}, {0, true}, {0, false}, {2, true}};
    trace.traffic = {{10, 100, 300}, {20, 0, 0}, {40, 400, 900}};
    const SwapTraffic one = simulate_swaps(trace, EvictionRule::kLru, 1);
    // 0 from disk, 1, both updates; the gather after the update is from the buffer.
    CHECK(one.hits == 1);
    CHECK(one.read_bytes == 10 + 20 + 100 + 400);
    CHECK(one.written_bytes == 300 + 900);
    const SwapTraffic two = simulate_swaps(trace, EvictionRule::kLru, 2);
    CHECK(two.hits == 4);
    CHECK(two.read_bytes == 20);
    CHECK(two.written_bytes == 0);
}

TEST_CASE("rules differ where uses differ: the often used stays under LFU, the late under Belady") {
    // 0 is used three times in a row, 1 and 2 once.
    SwapTrace trace;
    trace.uses = {{0, true}, {0, true}, {0, true}, {1, true}, {2, true}};
    trace.traffic.assign(3, {0, 1, 1});
    CHECK(simulate_swaps(trace, EvictionRule::kFifo, 2).read_bytes == 3);
    CHECK(simulate_swaps(trace, EvictionRule::kLru, 2).read_bytes == 3);
    CHECK(simulate_swaps(trace, EvictionRule::kLfu, 2).read_bytes == 2);
    CHECK(simulate_swaps(trace, EvictionRule::kBelady, 2).read_bytes == Approx(1.5));
}

TEST_CASE("no rule misses less than Belady's") {
    std::mt19937 random(7);
    for (int round = 0; round < 50; ++round) {
        const int n = 3 + static_cast<int>(random() % 12);
        SwapTrace trace;
        trace.traffic.assign(static_cast<size_t>(n), {0, 1, 1});
        for (int i = 0; i < 40; ++i)
            trace.uses.push_back({static_cast<int>(random() % static_cast<unsigned>(n)), true});
        for (int64_t buffers = 1; buffers <= n; ++buffers) {
            const double best = simulate_swaps(trace, EvictionRule::kBelady, buffers).hits;
            for (const EvictionRule rule : kEvictionRules)
                CHECK(simulate_swaps(trace, rule, buffers).hits <= best + 1);
        }
    }
}

}  // namespace dslaunch
