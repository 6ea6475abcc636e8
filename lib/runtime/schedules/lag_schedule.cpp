#include "runtime/schedules/lag_schedule.h"

#include <algorithm>

namespace dslaunch::runtime {

plan::LagPlan LagSchedule::of(int64_t update) const {
    plan::LagPlan plan;
    if (!config_.on) return plan;
    plan.on = true;
    plan.overlaps = config_.overlap;
    plan.important = config_.topk_ratio;
    const int64_t past = update - std::max<int64_t>(1, config_.warm_up_steps);
    plan.selects = past >= 0 && past % config_.select_interval == 0;
    if (past <= 0) return plan;
    const int64_t interval = config_.update_interval;
    const bool ends = past % interval == 0;
    plan.kind = ends ? plan::Lag::kWhole : plan::Lag::kPartial;
    if (!config_.overlap) return plan;
    const bool begins = past > 1 && (past - 1) % interval == 0;
    plan.kind = begins ? plan::Lag::kLate : plan::Lag::kPartial;
    plan.fills = ends;
    return plan;
}

}  // namespace dslaunch::runtime
