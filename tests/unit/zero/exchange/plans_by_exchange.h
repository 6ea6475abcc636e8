// The plans of an optimizer whose hosts exchange another thing in some updates, as the job makes
// them.
#pragma once

#include <map>

#include "config/run/run_config.h"
#include "plan/step/step_plan.h"
#include "runtime/schedules/exchange_schedule.h"

namespace dslaunch::testing {

class PlansByExchange {
  public:
    // All of it must outlive the plans.
    struct Parts {
        const config::OptimizerConfig& optimizer;
        const plan::ModelInfo& info;
        const plan::FlatLayout& layout;
        const plan::StepPlanOptions& options;
        const plan::StepPlan& exact;
        bool fused = false;  // updates of a host sum its ranks' gradients
    };
    explicit PlansByExchange(const Parts& parts)
        : parts_(parts), schedule_(parts.optimizer, parts.options.node_count()) {}

    // Does what BetweenSteps::before_step() does.
    [[nodiscard]] const plan::StepPlan* before(int64_t update) {
        const plan::Exchange exchange = schedule_.of(update);
        if (exchange == now_) return nullptr;
        now_ = exchange;
        if (exchange == plan::Exchange::kExact) return &parts_.exact;
        plan::StepPlan& made = plans_[exchange];
        if (!made.instructions.empty()) return &made;
        plan::StepPlanOptions options = parts_.options;
        options.exchange = exchange;
        options.fused_update = parts_.fused;
        made = plan::make_step_plan(parts_.info, parts_.layout, options);
        return &made;
    }

  private:
    Parts parts_;
    runtime::ExchangeSchedule schedule_;
    plan::Exchange now_ = plan::Exchange::kExact;
    std::map<plan::Exchange, plan::StepPlan> plans_;
};

}  // namespace dslaunch::testing
