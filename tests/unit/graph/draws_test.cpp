// Seeds of random numbers: every part of the key counts, and threads do not disturb each other.
#include "graph/draws/dropout_seeds.h"

#include <ATen/ops/full.h>
#include <torch/csrc/jit/ir/ir.h>

#include <set>
#include <thread>
#include <vector>

#include "graph/lower/lower.h"
#include "support/catch.h"
#include "support/script_module.h"
#include "support/whole_run.h"

namespace dslaunch {

using namespace graph;

TEST_CASE("every part of the key gives another seed, and equal keys the same") {
    std::set<uint64_t> seeds;
    constexpr int kValues = 5;
    int expected = 0;
    for (int seed = 0; seed < kValues; ++seed)
        for (int step = 0; step < kValues; ++step)
            for (int micro_batch = 0; micro_batch < kValues; ++micro_batch)
                for (int ordinal = 0; ordinal < kValues; ++ordinal)
                    for (int trip = 0; trip < kValues; ++trip, ++expected) {
                        const DrawKey key{static_cast<uint64_t>(seed), step, micro_batch};
                        seeds.insert(draw_seed(key, ordinal, trip));
                        REQUIRE(draw_seed(key, ordinal, trip) == draw_seed(key, ordinal, trip));
                    }
    CHECK(static_cast<int>(seeds.size()) == expected);
}

TEST_CASE("a draw inside a loop is another one in each trip") {
    // The trip count is data, so that the loop is not unrolled. With equal draws, both orders would
    // give the product r^2.
    Model model = test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    total = (self.w * 0.0).sum()\n"
        "    last = x * 0.0\n"
        "    for i in range(int(x.sum())):\n"
        "        r = torch.rand_like(x)\n"
        "        total = total + (r - last).abs().sum()\n"
        "        last = r\n"
        "    return total\n",
        {{"w", test::ramp(2)}});
    const SegmentedModel cut = SegmentedModel::make(model, {}, 1);
    const auto loss = [&](double trips) {
        return test::run_segments(cut, {at::full({2}, trips / 2)}, {1, 2, 3}, false).loss;
    };
    // If all trips drew the same numbers, the differences after the first would be zero and the
    // loss would not grow.
    CHECK(loss(2) > loss(1));
    CHECK(loss(4) > loss(2));
    CHECK(loss(4) == loss(4));
}

TEST_CASE("attention draws where it has dropout, and only there") {
    Model model = test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    q = torch.linear(x, self.w).unsqueeze(1)\n"
        "    a = torch.scaled_dot_product_attention(q, q, q, None, 0.0, True)\n"
        "    b = torch.scaled_dot_product_attention(q, q, q, None, 0.5, True)\n"
        "    return (a + b).sum()\n",
        {{"w", test::wave({4, 4}, 1)}});
    const LoweredGraph lowered = lower(model, {});
    std::vector<bool> found;
    for (const torch::jit::Node* node : lowered.graph->nodes())
        if (node->kind() == c10::aten::scaled_dot_product_attention) found.push_back(draws(*node));
    CHECK(found == std::vector<bool>{false, true});
}

TEST_CASE("ranks as threads draw what each draws alone") {
    constexpr int kThreads = 4;
    const auto draw = [](int64_t rank) {
        Model model = test::script_model(
            "def forward(self, x: Tensor) -> Tensor:\n"
            "    y = torch.dropout(x, 0.5, True) * self.w\n"
            "    y = y + torch.dropout(x, 0.5, True)\n"
            "    return (y + torch.dropout(x, 0.5, True)).sum()\n",
            {{"w", test::ramp(1)}});
        const SegmentedModel cut = SegmentedModel::make(model, {}, 2);
        std::vector<double> losses;
        for (int step = 0; step < 20; ++step)
            losses.push_back(
                test::run_segments(cut, {test::ramp(257)}, {5, step, rank}, step % 2 == 1).loss);
        return losses;
    };
    std::vector<std::vector<double>> alone, together(kThreads);
    for (int64_t rank = 0; rank < kThreads; ++rank) alone.push_back(draw(rank));
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < kThreads; ++rank)
        threads.emplace_back([&, rank] { together[rank] = draw(rank); });
    for (std::thread& thread : threads) thread.join();
    CHECK(together == alone);
    CHECK(alone[0] != alone[1]);
}

}  // namespace dslaunch
