// The step plans of 1-bit Adam and 0/1 Adam, whose hosts exchange another thing in some updates
// than in others. Each is made when it is first needed. Data path: trainer -> [here] -> executor,
// ZeRO state. Compute lane's thread.
#pragma once

#include <cstdint>
#include <map>

#include "job/setup/job_setup.h"
#include "runtime/comm/collectives.h"
#include "runtime/schedules/exchange_schedule.h"

namespace dslaunch::job {

class ExchangePlans {
  public:
    // OWN joins the ranks that train the same parameters. SETUP and OWN must outlive this, and the
    // trainer begins with SETUP's plan.
    ExchangePlans(const JobSetup& setup, runtime::Collectives& own);

    // Returns the plan of UPDATE if it is not that of the one asked for before, else null. Every
    // rank calls it. The plan lives as long as this. Throws Error{kDiverged} if ranks come to plans
    // that do not fit together.
    [[nodiscard]] const plan::StepPlan* of(int64_t update);

  private:
    const JobSetup& setup_;
    runtime::Collectives& own_;
    runtime::ExchangeSchedule schedule_;
    plan::Exchange now_;
    std::map<plan::Exchange, plan::StepPlan> plans_;
};

}  // namespace dslaunch::job
