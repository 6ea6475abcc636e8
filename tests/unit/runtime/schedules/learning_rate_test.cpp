// Expected values by hand from DeepSpeed's formulas: update u is its iteration u - 1.
#include "runtime/schedules/learning_rate.h"
#include "support/catch.h"

#include <cmath>

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
