#include "job/run/exchange_plans.h"

#include "job/setup/job_layout.h"

namespace dslaunch::job {

ExchangePlans::ExchangePlans(const JobSetup& setup, runtime::Collectives& own)
    : setup_(setup),
      own_(own),
      schedule_(setup.config().optimizer, setup.place.of_stage.node_count()),
      now_(setup.plan.exchange) {}

const plan::StepPlan* ExchangePlans::of(int64_t update) {
    const plan::Exchange exchange = schedule_.of(update);
    if (exchange == now_) return nullptr;
    now_ = exchange;
    if (exchange == setup_.plan.exchange) return &setup_.plan;
    const auto found = plans_.find(exchange);
    if (found != plans_.end()) return &found->second;
    plan::StepPlan& made = plans_[exchange];
    made = make_plan(setup_, setup_.place.of_stage, exchange);
    compare_plans(own_, made);
    return &made;
}

}  // namespace dslaunch::job
