#include "runtime/schedules/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace dslaunch::runtime {
namespace {

double warmup_share(const config::SchedulerConfig& scheduler, int64_t iteration, int64_t warmup) {
    if (scheduler.warmup_type == config::WarmupType::kLinear)
        return double(iteration) / double(warmup);
    return std::log(double(iteration + 1)) / std::log(double(warmup));
}

double cosine_ratio(const config::SchedulerConfig& scheduler, int64_t iteration, int64_t warmup) {
    double decay_steps = double(std::max<int64_t>(1, scheduler.total_num_steps - warmup));
    double progress = std::min(1.0, double(iteration - warmup + 1) / decay_steps);
    double share = (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
    return std::max(0.0, scheduler.cos_min_ratio + (1.0 - scheduler.cos_min_ratio) * share);
}

// Returns the rate's position in the cycle at BATCH (counted from 0): 0 is the cycle's lower bound,
// 1 its upper bound.
double cycle_share(const config::CycleConfig& cycle, int64_t batch) {
    const auto first = double(cycle.first_steps), second = double(cycle.second_steps);
    const double total = first + second;
    const double at = std::fmod(double(batch), total);
    const bool rises = at <= first;
    const int64_t stairs = rises ? cycle.first_stairs : cycle.second_stairs;
    const double way = rises ? at : total - at, length = rises ? first : second;
    return stairs > 0 ? std::floor(way * double(stairs) / length) / double(stairs) : way / length;
}

double one_cycle(const config::CycleConfig& cycle, int64_t update) {
    if (update == 0) return cycle.min_lr;
    const int64_t total = cycle.first_steps + cycle.second_steps;
    if (update - 1 < total)
        return cycle.min_lr + (cycle.max_lr - cycle.min_lr) * cycle_share(cycle, update);
    if (cycle.decay_steps == 0 || cycle.lr_decay_rate == 0) return cycle.min_lr;
    const double interval = double(update - total) / double(cycle.decay_steps);
    return cycle.min_lr / (1 + cycle.lr_decay_rate * interval);
}

double range_test(const config::RangeTestConfig& test, int64_t update) {
    double interval = double(update) / double(test.steps);
    if (test.staircase) interval = std::floor(interval);
    return test.min_lr * (1 + test.rate * interval);
}

double decayed(config::DecayType type, double progress) {
    switch (type) {
        case config::DecayType::kLinear:
            return std::max(0.0, 1 - progress);
        case config::DecayType::kCosine:
            return (1 + std::cos(std::numbers::pi * progress)) / 2;
        case config::DecayType::kOneMinusSqrt:
            return 1 - std::sqrt(progress);
    }
    DSL_CHECK(false, "decay {}", static_cast<int>(type));
}

// Returns the factor by which transformers' schedules multiply the base rate.
double share_of_transformers(const config::SchedulerConfig& scheduler, int64_t update) {
    const bool wsd = scheduler.kind == config::SchedulerKind::kWsd;
    const double least = scheduler.min_ratio;
    const auto at_least = [least](double share) { return least + (1 - least) * share; };
    if (update < scheduler.warmup_num_steps) {
        const double share = double(update) / double(scheduler.warmup_num_steps);
        return wsd ? at_least(share) : share;
    }
    const int64_t steps =
        wsd ? scheduler.decay_num_steps : scheduler.total_num_steps - scheduler.warmup_num_steps;
    const int64_t begin = scheduler.total_num_steps - steps;
    if (update < begin) return 1;
    const double progress =
        std::min(1.0, double(update - begin) / double(std::max<int64_t>(1, steps)));
    const auto type = wsd ? scheduler.decay_type
                      : scheduler.kind == config::SchedulerKind::kCosine
                          ? config::DecayType::kCosine
                          : config::DecayType::kLinear;
    return at_least(decayed(type, progress));
}

}  // namespace

std::optional<config::Betas> scheduled_betas(const config::SchedulerConfig& scheduler,
                                             int64_t update) {
    DSL_CHECK(update >= 0, "the index of an update must not be negative");
    const config::CycleConfig& cycle = scheduler.cycle;
    if (scheduler.kind != config::SchedulerKind::kOneCycle || !cycle.betas) return std::nullopt;
    constexpr double kBeta2 = 0.99;
    if (update == 0) return config::Betas{cycle.min_beta, kBeta2};
    const int64_t total = cycle.first_steps + cycle.second_steps;
    if (update - 1 < total)
        return config::Betas{
            cycle.max_beta - (cycle.max_beta - cycle.min_beta) * cycle_share(cycle, update),
            kBeta2};
    if (cycle.decay_steps == 0 || cycle.beta_decay_rate == 0)
        return config::Betas{cycle.max_beta, kBeta2};
    const double interval = double(update - total) / double(cycle.decay_steps);
    return config::Betas{cycle.max_beta * (1 + cycle.beta_decay_rate * interval), kBeta2};
}

double learning_rate(const config::SchedulerConfig& scheduler, double base_lr, int64_t update) {
    DSL_CHECK(update >= 0, "the index of an update must not be negative");
    switch (scheduler.kind) {
        case config::SchedulerKind::kConstant:
            return base_lr;
        case config::SchedulerKind::kOneCycle:
            return one_cycle(scheduler.cycle, update);
        case config::SchedulerKind::kLrRangeTest:
            return range_test(scheduler.range_test, update);
        case config::SchedulerKind::kRelativeStep: {
            const auto t = double(update + 1);
            return base_lr * std::min(scheduler.warmup_init ? 1e-6 * t : 1e-2, 1 / std::sqrt(t));
        }
        case config::SchedulerKind::kLinear:
        case config::SchedulerKind::kCosine:
        case config::SchedulerKind::kWsd:
            return base_lr * share_of_transformers(scheduler, update);
        case config::SchedulerKind::kWarmupLr:
        case config::SchedulerKind::kWarmupDecayLr:
        case config::SchedulerKind::kWarmupCosineLr:
            break;
    }
    int64_t iteration = update - 1;
    int64_t warmup = std::max<int64_t>(2, scheduler.warmup_num_steps);
    bool cosine = scheduler.kind == config::SchedulerKind::kWarmupCosineLr;
    if (iteration < 0) return cosine ? 0.0 : scheduler.warmup_min_lr;
    if (iteration < warmup) {
        double share = warmup_share(scheduler, iteration, warmup);
        double ratio = scheduler.warmup_min_ratio;
        if (cosine) return base_lr * (ratio + (1.0 - ratio) * share);
        return scheduler.warmup_min_lr +
               (scheduler.warmup_max_lr - scheduler.warmup_min_lr) * share;
    }
    if (cosine) return base_lr * cosine_ratio(scheduler, iteration, warmup);
    double share = 1.0;
    if (scheduler.kind == config::SchedulerKind::kWarmupDecayLr) {
        double decay_steps = std::max(1.0, double(scheduler.total_num_steps - warmup));
        share = std::max(0.0, double(scheduler.total_num_steps - iteration) / decay_steps);
    }
    return scheduler.warmup_min_lr + (scheduler.warmup_max_lr - scheduler.warmup_min_lr) * share;
}

std::optional<int64_t> first_moving_update(const config::SchedulerConfig& scheduler, double base_lr,
                                           const Range& updates) {
    for (int64_t update = updates.begin; update < updates.end(); ++update)
        if (learning_rate(scheduler, base_lr, update) > 0) return update;
    return std::nullopt;
}

}  // namespace dslaunch::runtime
