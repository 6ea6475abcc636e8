#include "runtime/schedules/exchange_schedule.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::runtime {

using config::OptimizerKind;
using plan::Exchange;

Exchange ExchangeSchedule::of(int64_t update) {
    DSL_CHECK(update >= 1, "update {}", update);
    Exchange exchange = Exchange::kExact;
    if (optimizer_.kind == OptimizerKind::kOneBitAdam ||
        optimizer_.kind == OptimizerKind::kOneBitLamb) {
        // At least one exact step comes first, so that the variance, which later stays fixed, is
        // not 0.
        const bool warm = update <= std::max<int64_t>(1, optimizer_.one_bit.freeze_step);
        exchange = warm ? Exchange::kExact : Exchange::kMomentum;
    } else if (optimizer_.kind == OptimizerKind::kZeroOneAdam) {
        if (update < update_) *this = ExchangeSchedule(optimizer_, hosts_);
        while (update_ < update) exchange_ = next_zero_one();
        exchange = exchange_;
    }
    return hosts_ == 1 && exchange != Exchange::kExact ? Exchange::kNone : exchange;
}

int64_t ExchangeSchedule::first_alone(const config::OptimizerConfig& optimizer) {
    if (optimizer.kind != OptimizerKind::kZeroOneAdam) return -1;
    return optimizer.one_bit.var_freeze_step + 2;
}

plan::CompressionRoom ExchangeSchedule::room(const config::OptimizerConfig& optimizer, int hosts) {
    if (!optimizer.compresses() || hosts == 1) return {};
    return {true, optimizer.kind == OptimizerKind::kZeroOneAdam};
}

Exchange ExchangeSchedule::next_zero_one() {
    const config::OneBitConfig& config = optimizer_.one_bit;
    ++update_;
    if (update_ < first_alone(optimizer_)) {
        if (update_ % variance_interval_ != 0) return Exchange::kGradient;
        if (++variance_uses_ == config.var_update_scaler) {
            variance_uses_ = 0;
            variance_interval_ *= 2;
        }
        return Exchange::kExact;
    }
    const bool meets = update_ % local_interval_ == 0;
    if (++local_uses_ == config.local_step_scaler) {
        local_uses_ = 0;
        local_interval_ = std::min(config.local_step_clipper, 2 * local_interval_);
    }
    return meets ? Exchange::kMoves : Exchange::kNone;
}

plan::LagPlan lag_of(const config::LaggingConfig& config, int64_t update) {
    plan::LagPlan plan;
    if (!config.on) return plan;
    plan.on = true;
    plan.overlaps = config.overlap;
    plan.important = config.topk_ratio;
    const int64_t past = update - std::max<int64_t>(1, config.warm_up_steps);
    plan.selects = past >= 0 && past % config.select_interval == 0;
    if (past <= 0) return plan;
    const int64_t interval = config.update_interval;
    const bool ends = past % interval == 0;
    plan.kind = ends ? plan::Lag::kWhole : plan::Lag::kPartial;
    if (!config.overlap) return plan;
    const bool begins = past > 1 && (past - 1) % interval == 0;
    plan.kind = begins ? plan::Lag::kLate : plan::Lag::kPartial;
    plan.fills = ends;
    return plan;
}

}  // namespace dslaunch::runtime
