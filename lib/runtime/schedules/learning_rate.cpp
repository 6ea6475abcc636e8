#include "runtime/schedules/learning_rate.h"

#include "base/check.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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

}  // namespace

double learning_rate(const config::SchedulerConfig& scheduler, double base_lr, int64_t update) {
    DSL_CHECK(update >= 0, "an update's index is not negative");
    if (scheduler.kind == config::SchedulerKind::kConstant) return base_lr;
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

}  // namespace dslaunch::runtime
