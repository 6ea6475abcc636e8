// Expected values, computed by hand with DeepSpeed's formulas: update u is its iteration u - 1.
#include "runtime/schedules/learning_rate.h"

#include <cmath>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::runtime;

namespace {

SchedulerConfig scheduler(SchedulerKind kind, WarmupType type) {
    SchedulerConfig config;
    config.kind = kind;
    config.warmup_type = type;
    config.warmup_min_lr = 0.1;
    config.warmup_max_lr = 0.9;
    config.warmup_num_steps = 8;
    config.total_num_steps = 24;
    return config;
}

}  // namespace

TEST_CASE("without a scheduler the rate is the optimizer's at every update") {
    CHECK(learning_rate(SchedulerConfig{}, 0.5, 0) == 0.5);
    CHECK(learning_rate(SchedulerConfig{}, 0.5, 1'000'000) == 0.5);
}

TEST_CASE("WarmupLR rises by the logarithm: thirds at iterations 1, 3 and 7 of a warm-up of 8") {
    SchedulerConfig config = scheduler(SchedulerKind::kWarmupLr, WarmupType::kLog);
    CHECK(learning_rate(config, 7.0, 0) == 0.1);
    CHECK(learning_rate(config, 7.0, 1) == 0.1);
    CHECK(learning_rate(config, 7.0, 2) == Approx(0.1 + 0.8 / 3));
    CHECK(learning_rate(config, 7.0, 4) == Approx(0.1 + 1.6 / 3));
    CHECK(learning_rate(config, 7.0, 8) == Approx(0.9));
    CHECK(learning_rate(config, 7.0, 1000) == Approx(0.9));
}

TEST_CASE("WarmupLR rises linearly and a warm-up of 1 step counts as 2") {
    SchedulerConfig config = scheduler(SchedulerKind::kWarmupLr, WarmupType::kLinear);
    CHECK(learning_rate(config, 7.0, 1) == Approx(0.1));
    CHECK(learning_rate(config, 7.0, 5) == Approx(0.5));
    CHECK(learning_rate(config, 7.0, 9) == Approx(0.9));
    config.warmup_num_steps = 1;
    CHECK(learning_rate(config, 7.0, 2) == Approx(0.5));
    CHECK(learning_rate(config, 7.0, 3) == Approx(0.9));
}

TEST_CASE("WarmupDecayLR falls linearly to the minimum at total_num_steps and stays") {
    SchedulerConfig config = scheduler(SchedulerKind::kWarmupDecayLr, WarmupType::kLog);
    CHECK(learning_rate(config, 7.0, 9) == Approx(0.9));
    CHECK(learning_rate(config, 7.0, 17) == Approx(0.5));
    CHECK(learning_rate(config, 7.0, 25) == Approx(0.1));
    CHECK(learning_rate(config, 7.0, 99) == Approx(0.1));
}

TEST_CASE("WarmupCosineLR starts at 0, warms up from its ratio, and ends at cos_min_ratio") {
    SchedulerConfig config = scheduler(SchedulerKind::kWarmupCosineLr, WarmupType::kLinear);
    config.warmup_min_ratio = 0.2;
    config.cos_min_ratio = 0.1;
    CHECK(learning_rate(config, 2.0, 0) == 0.0);
    CHECK(learning_rate(config, 2.0, 1) == Approx(0.4));
    CHECK(learning_rate(config, 2.0, 5) == Approx(2.0 * (0.2 + 0.8 * 0.5)));
    // Iteration 15 is 8 of 16 steps into the decay: half way between 1 and cos_min_ratio.
    CHECK(learning_rate(config, 2.0, 16) == Approx(2.0 * 0.55));
    CHECK(learning_rate(config, 2.0, 24) == Approx(0.2));
    CHECK(learning_rate(config, 2.0, 99) == Approx(0.2));
}

// The expected values of this and the next cases are DeepSpeed's own (0.19.8), update by update.
TEST_CASE("OneCycle rises, falls and decays, in stairs if asked for, and moves the first beta") {
    SchedulerConfig config;
    config.kind = SchedulerKind::kOneCycle;
    config.cycle.min_lr = 0.1;
    config.cycle.max_lr = 0.9;
    config.cycle.first_steps = 4;
    config.cycle.second_steps = 8;
    config.cycle.decay_steps = 2;
    config.cycle.lr_decay_rate = 0.5;
    config.cycle.beta_decay_rate = 0.25;
    const std::vector<double> rates = {0.1, 0.3, 0.5, 0.7, 0.9, 0.8,  0.7,      0.6,
                                       0.5, 0.4, 0.3, 0.2, 0.1, 0.08, 1.0 / 15, 0.4 / 7};
    const std::vector<double> betas = {0.8,  0.875,  0.85,  0.825,  0.8, 0.8125, 0.825, 0.8375,
                                       0.85, 0.8625, 0.875, 0.8875, 0.9, 1.0125, 1.125, 1.2375};
    for (int64_t u = 0; u < std::ssize(rates); ++u) {
        INFO(u);
        CHECK(learning_rate(config, 7.0, u) == Approx(rates[static_cast<size_t>(u)]));
        const auto moved = scheduled_betas(config, u);
        REQUIRE(moved);
        CHECK(moved->beta1 == Approx(betas[static_cast<size_t>(u)]));
        CHECK(moved->beta2 == 0.99);
    }
    config.cycle.first_stairs = config.cycle.second_stairs = 2;
    const std::vector<double> stairs = {0.1, 0.1, 0.5, 0.5, 0.9, 0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1};
    for (int64_t u = 0; u < std::ssize(stairs); ++u)
        CHECK(learning_rate(config, 7.0, u) == Approx(stairs[static_cast<size_t>(u)]));
    config.cycle.betas = false;
    CHECK_FALSE(scheduled_betas(config, 3));
    CHECK_FALSE(scheduled_betas(SchedulerConfig{}, 3));
    config.cycle.decay_steps = 0;
    CHECK(learning_rate(config, 7.0, 1000) == 0.1);
}

TEST_CASE("LRRangeTest grows by its rate every step_size updates, in stairs if asked for") {
    SchedulerConfig config;
    config.kind = SchedulerKind::kLrRangeTest;
    config.range_test = {0.01, 4, 2.0, false};
    CHECK(learning_rate(config, 7.0, 0) == Approx(0.01));
    CHECK(learning_rate(config, 7.0, 1) == Approx(0.015));
    CHECK(learning_rate(config, 7.0, 6) == Approx(0.04));
    config.range_test.staircase = true;
    CHECK(learning_rate(config, 7.0, 3) == Approx(0.01));
    CHECK(learning_rate(config, 7.0, 7) == Approx(0.03));
}

// Expected values follow transformers' formulas, which count updates from 0.
TEST_CASE("Linear, Cosine and WSD warm up from update 0 and end at min_ratio") {
    SchedulerConfig config;
    config.kind = SchedulerKind::kLinear;
    config.warmup_num_steps = 4;
    config.total_num_steps = 12;
    CHECK(learning_rate(config, 2.0, 0) == 0.0);
    CHECK(learning_rate(config, 2.0, 1) == Approx(0.5));
    CHECK(learning_rate(config, 2.0, 4) == Approx(2.0));
    CHECK(learning_rate(config, 2.0, 8) == Approx(1.0));
    CHECK(learning_rate(config, 2.0, 99) == 0.0);
    config.kind = SchedulerKind::kCosine;
    config.min_ratio = 0.2;
    CHECK(learning_rate(config, 2.0, 2) == Approx(1.0));
    CHECK(learning_rate(config, 2.0, 8) == Approx(2.0 * 0.6));
    CHECK(learning_rate(config, 2.0, 12) == Approx(0.4));
    CHECK(learning_rate(config, 2.0, 99) == Approx(0.4));
    config.kind = SchedulerKind::kWsd;
    config.decay_num_steps = 4;
    CHECK(learning_rate(config, 2.0, 0) == Approx(0.4));
    CHECK(learning_rate(config, 2.0, 2) == Approx(2.0 * 0.6));
    CHECK(learning_rate(config, 2.0, 7) == 2.0);
    CHECK(learning_rate(config, 2.0, 8) == 2.0);
    CHECK(learning_rate(config, 2.0, 10) == Approx(2.0 * 0.6));
    config.decay_type = DecayType::kOneMinusSqrt;
    CHECK(learning_rate(config, 2.0, 9) == Approx(2.0 * (0.2 + 0.8 * 0.5)));
    config.decay_type = DecayType::kCosine;
    CHECK(learning_rate(config, 2.0, 10) == Approx(2.0 * 0.6));
    CHECK(learning_rate(config, 2.0, 99) == Approx(0.4));
    // Without a warm-up the first update has the whole rate.
    config.warmup_num_steps = 0;
    CHECK(learning_rate(config, 2.0, 0) == 2.0);
}

TEST_CASE("Adafactor's own rate is a hundredth, then falls by the root of the step") {
    SchedulerConfig scheduler;
    scheduler.kind = SchedulerKind::kRelativeStep;
    CHECK(learning_rate(scheduler, 1, 0) == 0.01);
    CHECK(learning_rate(scheduler, 1, 9'999) == 0.01);
    CHECK(learning_rate(scheduler, 1, 39'999) == 0.005);
    scheduler.warmup_init = true;
    CHECK(learning_rate(scheduler, 1, 0) == 1e-6);
    CHECK(learning_rate(scheduler, 1, 4'999) == 5e-3);
    CHECK(learning_rate(scheduler, 1, 39'999) == 0.005);
}

TEST_CASE("the first update that moves a weight is the first with a rate above 0") {
    SchedulerConfig warmup = scheduler(SchedulerKind::kWarmupCosineLr, WarmupType::kLinear);
    // Iterations -1 and 0 have the rate 0, the next one an eighth.
    CHECK(first_moving_update(warmup, 1.0, {0, 10}) == 2);
    CHECK(first_moving_update(warmup, 1.0, {5, 1}) == 5);
    CHECK_FALSE(first_moving_update(warmup, 1.0, {0, 2}));
    CHECK_FALSE(first_moving_update(warmup, 1.0, {0, 0}));
    CHECK(first_moving_update(SchedulerConfig{}, 1.0, {0, 1}) == 0);
    CHECK_FALSE(first_moving_update(SchedulerConfig{}, 0.0, {0, 100}));
}
