// The kind of step for each update of a job. Data path: run config -> [here] -> step plans. One
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "job/setup/job_setup.h"
#include "runtime/schedules/exchange_schedule.h"

namespace dslaunch::job {

// The kinds of steps of a job, update by update.
class StepKinds {
  public:
    explicit StepKinds(const JobSetup& setup);

    // Returns true if updates are of different kinds.
    [[nodiscard]] static bool differ(const config::RunConfig& config);
    // Returns the kind of UPDATE, counted from 1. Fast for consecutive updates.
    [[nodiscard]] plan::StepKind of(int64_t update);

  private:
    runtime::ExchangeSchedule exchanges_;
    config::LaggingConfig lagging_;
};

// Returns the kind of step that PLAN was made for.
[[nodiscard]] inline plan::StepKind kind_of(const plan::StepPlan& plan) {
    return {plan.exchange, plan.lag};
}

// Returns all kinds of steps that the job can have, each once.
[[nodiscard]] std::vector<plan::StepKind> all_step_kinds(const JobSetup& setup);

}  // namespace dslaunch::job
