// The plans of a job whose updates are of several kinds, chosen as the job chooses them. Kinds
// differ in what hosts exchange, and in which parameters they update if updates may lag.
#pragma once

#include <algorithm>
#include <deque>

#include "config/run/lagging_config.h"
#include "config/run/run_config.h"
#include "plan/step/step_plan.h"
#include "runtime/schedules/exchange_schedule.h"

namespace dslaunch::testing {

class PlansByKind {
  public:
    // The parts from which plans are made. They must outlive the plans.
    struct Parts {
        const config::OptimizerConfig& optimizer;
        const config::LaggingConfig& lagging;
        const plan::ModelInfo& info;
        const plan::FlatLayout& layout;
        const plan::StepPlanOptions& options;
        const plan::StepPlan& first;
        bool fused = false;  // true: the updates of a host sum its ranks' gradients
    };
    explicit PlansByKind(const Parts& parts)
        : parts_(parts),
          exchanges_(parts.optimizer, parts.options.node_count()),
          now_(kind_of(parts.first)) {}

    // Does what BetweenSteps::before_step() does.
    [[nodiscard]] const plan::StepPlan* before(int64_t update) {
        plan::StepKind kind{exchanges_.of(update), runtime::lag_of(parts_.lagging, update)};
        kind.lag.unit_numel = parts_.options.lag.unit_numel;
        if (kind == now_) return nullptr;
        now_ = kind;
        if (kind == kind_of(parts_.first)) return &parts_.first;
        const auto found = std::ranges::find(plans_, kind, kind_of);
        if (found != plans_.end()) return &*found;
        plan::StepPlanOptions options = parts_.options;
        options.exchange = kind.exchange;
        options.lag = kind.lag;
        options.fused_update = parts_.fused;
        plans_.push_back(plan::make_step_plan(parts_.info, parts_.layout, options));
        return &plans_.back();
    }

  private:
    static plan::StepKind kind_of(const plan::StepPlan& plan) { return {plan.exchange, plan.lag}; }

    Parts parts_;
    runtime::ExchangeSchedule exchanges_;
    plan::StepKind now_;
    std::deque<plan::StepPlan> plans_;
};

}  // namespace dslaunch::testing
