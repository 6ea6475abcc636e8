// Passes whose cost is a known polynomial of the tokens, and the estimate for a longer one.
#include "plan/predict/longer_pass.h"

#include <functional>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::plan;

namespace {

// Returns passes over samples of TOKENS of a model with one segment, whose costs are functions of
// the tokens.
std::vector<MeasuredPass> passes_of(const std::vector<int64_t>& tokens,
                                    const std::function<int64_t(int64_t)>& bytes,
                                    const std::function<double(int64_t)>& seconds) {
    std::vector<MeasuredPass> passes;
    for (const int64_t n : tokens) {
        MeasuredPass pass{n, seconds(n), {}};
        SegmentInfo segment;
        segment.forward_peak = Bytes{bytes(n) / 2};
        segment.backward_peak = Bytes{bytes(n) / 4};
        segment.backward_blocks = Bytes{bytes(n) - bytes(n) / 4};
        segment.activation_bytes = Bytes{100 * n};
        segment.output_bytes = Bytes{8 * n};
        segment.forward_flops = 6 * n + n * n;
        pass.info.segments = {segment};
        passes.push_back(std::move(pass));
    }
    return passes;
}

}  // namespace

TEST_CASE("a pass that grows with the square of the tokens is foreseen exactly") {
    const auto bytes = [](int64_t n) { return 4000 + 40 * n + 4 * n * n; };
    const auto seconds = [](int64_t n) { return 0.5 + 1e-3 * double(n) + 1e-6 * double(n * n); };
    const std::vector<MeasuredPass> passes = passes_of({16, 64, 128, 256}, bytes, seconds);
    const PassSize size{1, 100'000};
    const PassCost cost = cost_of_pass(passes, size);
    CHECK(cost.seconds == Approx(seconds(100'000)).epsilon(1e-6));
    CHECK(double(cost.bytes.value) == Approx(double(bytes(100'000))).epsilon(1e-6));
    const SegmentInfo segment = info_of_pass(passes, size).segments.front();
    CHECK(segment.forward_flops == 600'000 + 10'000'000'000);
    CHECK(segment.activation_bytes == Bytes{10'000'000});
    CHECK(segment.output_bytes == Bytes{800'000});
    CHECK(double((segment.backward_peak + segment.backward_blocks).value) ==
          Approx(double(bytes(100'000))).epsilon(1e-6));
}

TEST_CASE("rows repeat what grows with the tokens, but not what is there once") {
    const auto passes = passes_of(
        {16, 32, 64}, [](int64_t n) { return 8000 + 400 * n; }, [](int64_t) { return 2.0; });
    const PassCost cost = cost_of_pass(passes, {10, 1000});
    CHECK(cost.seconds == Approx(2.0));
    CHECK(cost.bytes == Bytes{8000 + 10 * 400 * 1000});
}

TEST_CASE("noise does not become growth, and a cost is never negative") {
    // The times fall, as the first pass also reads the weights.
    const auto falling = passes_of(
        {16, 32, 64}, [](int64_t n) { return 100 * n + (n == 64 ? 1 : 0); },
        [](int64_t n) { return n == 16   ? 5.0
                               : n == 32 ? 1.0
                                         : 0.9; });
    const PassCost cost = cost_of_pass(falling, {1, 64'000});
    CHECK(cost.seconds >= 0);
    // One byte in 6401 is less than the noise that is left out.
    CHECK(double(cost.bytes.value) == Approx(6'400'000.0).epsilon(0.01));
}
