// Tells the kind of step of each update of a job. Data path: run config -> [here] -> step plans.
// One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "job/setup/job_setup.h"
#include "runtime/schedules/exchange_schedule.h"

namespace dslaunch::job {

class StepKinds {
  public:
    explicit StepKinds(const JobSetup& setup);

    // Returns true if not all updates are of one kind.
    [[nodiscard]] static bool differ(const config::RunConfig& config);
    // UPDATE counts from 1. Cheap for updates that follow each other.
    [[nodiscard]] plan::StepKind of(int64_t update);

  private:
    runtime::ExchangeSchedule exchanges_;
    config::LaggingConfig lagging_;
};

[[nodiscard]] inline plan::StepKind kind_of(const plan::StepPlan& plan) {
    return {plan.exchange, plan.lag};
}

// Returns all kinds of steps that the job may have, each once.
[[nodiscard]] std::vector<plan::StepKind> all_step_kinds(const JobSetup& setup);

}  // namespace dslaunch::job
