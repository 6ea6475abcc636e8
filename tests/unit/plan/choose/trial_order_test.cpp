// The candidates that are tried, their order, and the end of a search, for made-up measurements.
#include "plan/choose/trial_order.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::plan;

namespace {

constexpr double kLong = 1e9;

// Returns candidates whose micro batches are 1, 2, …, with these FORECASTS.
std::vector<TrialCandidate> with_forecasts(const std::vector<double>& forecasts) {
    std::vector<TrialCandidate> candidates;
    for (const double forecast_s : forecasts) {
        TrialCandidate one;
        one.settings.micro_rows = std::ssize(candidates) + 1;
        one.forecast_s = forecast_s;
        candidates.push_back(one);
    }
    return candidates;
}

// Runs the search with steps of STEP_S(candidate); a negative time is a failure. Returns the
// candidates in the order of their trials.
std::vector<int> run(TrialOrder& order, const std::function<double(int)>& step_s,
                     double left_s = kLong, double trial_s = 1) {
    std::vector<int> tried;
    while (const auto next = order.next(left_s, trial_s)) {
        tried.push_back(*next);
        REQUIRE(tried.size() < 1000);
        const double took_s = step_s(*next);
        if (took_s < 0) {
            order.add_failed(*next);
        } else {
            order.add_measured(*next, took_s);
        }
        left_s -= trial_s;
    }
    return tried;
}

}  // namespace

TEST_CASE("the given config comes first, then the shortest expected step, the finalists in turns") {
    TrialOrder order(with_forecasts({4, 3, 1, 2}), {});
    // Measured steps take twice the forecast: candidate 2 is the best, and candidate 3 too slow for
    // another trial.
    const std::vector<int> tried = run(order, [](int c) { return std::vector{8., 6., 2., 4.}[c]; });
    CHECK(tried == std::vector{0, 2});
    CHECK(order.best() == 2);
    CHECK(order.expected_s(3) == 4);
    CHECK(order.why_untried(3) == WhyUntried::kExpectedSlower);
    CHECK(order.why_untried(2) == WhyUntried::kTried);
}

TEST_CASE("the best are measured again in turns, and the lowest median is chosen") {
    TrialOrder order(with_forecasts({1.02, 1.0, 1.01}), {});
    // Candidate 1 is lucky once; its median is the highest.
    std::vector<std::vector<double>> steps = {
        {1.05, 1.05, 1.05}, {1.0, 1.1, 1.1}, {1.02, 1.02, 1.02}};
    const std::vector<int> tried = run(order, [&](int c) {
        const double step_s = steps[c].front();
        steps[c].erase(steps[c].begin());
        return step_s;
    });
    CHECK(tried.size() == 9);
    CHECK(tried[0] == 0);
    for (int c = 0; c < 3; ++c) CHECK(order.rounds_of(c) == 3);
    // No finalist gets its third measurement before all have two.
    for (int c = 0; c < 3; ++c) CHECK(std::count(tried.begin(), tried.begin() + 6, c) == 2);
    CHECK(order.best() == 2);
    CHECK(*order.step_s(1) == 1.1);
}

TEST_CASE("a forecast is corrected by the measured candidate that is most like it") {
    std::vector<TrialCandidate> candidates(4);
    candidates[0] = {.settings = {.micro_rows = 1, .stage = 0}, .forecast_s = 1};
    candidates[1] = {.settings = {.micro_rows = 8, .stage = 3}, .forecast_s = 1};
    candidates[2] = {.settings = {.micro_rows = 8, .stage = 0, .recompute_groups = 4},
                     .forecast_s = 1};
    candidates[3] = {.settings = {.micro_rows = 8, .stage = 3, .recompute_groups = 4},
                     .forecast_s = 2};
    TrialOrder order(candidates, {});
    order.add_measured(0, 1);
    CHECK(order.expected_s(3) == 2);
    order.add_measured(1, 3);
    CHECK(order.expected_s(3) == 6);  // differs in one setting from candidate 1
    CHECK(order.expected_s(2) == 1);  // differs in two from both: the first one counts
}

TEST_CASE("a candidate that fails is passed over, and one that does not fit is not tried") {
    std::vector<TrialCandidate> candidates = with_forecasts({3, 1, 2, 0.5});
    candidates[3].fits = false;
    TrialOrder order(candidates, {});
    const std::vector<int> tried = run(order, [](int c) { return c == 1 ? -1. : 10. - c; });
    CHECK(tried[0] == 0);
    CHECK(std::count(tried.begin(), tried.end(), 1) == 1);
    CHECK(std::count(tried.begin(), tried.end(), 3) == 0);
    CHECK(order.best() == 2);
    CHECK(order.has_failed(1));
    CHECK(order.why_untried(3) == WhyUntried::kDoesNotFit);
}

TEST_CASE("the search goes on if even the given config fails") {
    TrialOrder order(with_forecasts({1, 2, 3}), {});
    run(order, [](int c) { return c == 0 ? -1. : 1. * c; });
    CHECK(order.best() == 1);
}

TEST_CASE("the search ends after trials without a gain, and at the number of trials") {
    std::vector<double> forecasts(20, 1.0);
    TrialOrder order(with_forecasts(forecasts), {.without_gain_max = 4, .finalists = 1});
    const std::vector<int> tried = run(order, [](int c) { return c == 0 ? 1.0 : 1.2; });
    CHECK(tried.size() == 5);
    CHECK(order.why_untried(19) == WhyUntried::kNoGain);
    TrialOrder few(with_forecasts(forecasts), {.candidates_max = 3, .finalists = 1});
    CHECK(run(few, [](int c) { return 2.0 - 0.01 * c; }).size() == 3);
    CHECK(few.why_untried(19) == WhyUntried::kTrialsMax);
}

TEST_CASE("a grid tries every candidate once in the list's order, whatever is expected") {
    TrialOrder order(with_forecasts({1, 9, 5, 7}), {.method = TrialMethod::kGrid, .finalists = 1});
    CHECK(run(order, [](int c) { return 10. + c; }) == std::vector{0, 1, 2, 3});
    TrialOrder random(with_forecasts({1, 9, 5, 7}),
                      {.method = TrialMethod::kRandom, .finalists = 1});
    std::vector<int> tried = run(random, [](int c) { return 10. + c; });
    CHECK(tried.front() == 0);
    std::sort(tried.begin(), tried.end());
    CHECK(tried == std::vector{0, 1, 2, 3});
}

TEST_CASE("time for measuring the finalists again is set aside") {
    // 10 trials of 1 s: one candidate needs 1 + 2 x 2 (it and the given one), two need 1 + 3 x 2.
    TrialOrder order(with_forecasts(std::vector<double>(30, 1.0)), {.without_gain_max = 100});
    const std::vector<int> tried = run(
        order, [](int) { return 1.0; }, 10, 1);
    CHECK(tried.size() == 10);
    int distinct = 0, thrice = 0;
    for (int c = 0; c < 30; ++c) {
        distinct += order.rounds_of(c) > 0 ? 1 : 0;
        thrice += order.rounds_of(c) == 3 ? 1 : 0;
    }
    CHECK(distinct == 4);
    CHECK(thrice == 3);
    CHECK(order.why_untried(29) == WhyUntried::kNoTime);
}

TEST_CASE("time that the finalists do not need is spent on new candidates") {
    // After the first trial 1 + 2 x 2 are wanted and 4 are left, but there is no second finalist.
    TrialOrder order(with_forecasts({1, 1, 1, 1, 1, 1}), {.expected_max = 100});
    const std::vector<int> tried = run(
        order, [](int c) { return 64.0 / (1 << (2 * c)); }, 5, 1);
    CHECK(tried == std::vector{0, 1, 2, 3, 4});
    CHECK(order.best() == 4);
}

TEST_CASE("the given config is tried however little time is left, and nothing after it") {
    TrialOrder order(with_forecasts({1, 1}), {});
    CHECK(run(
              order, [](int) { return 1.0; }, 0.1, 1) == std::vector{0});
    CHECK(order.best() == 0);
}
