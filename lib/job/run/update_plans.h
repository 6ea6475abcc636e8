// The step plans of a job whose updates differ: hosts exchange another thing in some than in others
// (1-bit Adam, 0/1 Adam), or the rest of the parameters is updated in some alone. Each is made when
// it is first needed. Data path: trainer -> [here] -> executor, ZeRO state. Compute lane's thread.
#pragma once

#include <cstdint>
#include <deque>

#include "job/setup/job_setup.h"
#include "job/setup/step_kinds.h"
#include "runtime/comm/collectives.h"

namespace dslaunch::job {

class UpdatePlans {
  public:
    // OWN joins the ranks that train the same parameters. SETUP and OWN must outlive this, and the
    // trainer begins with SETUP's plan.
    UpdatePlans(const JobSetup& setup, runtime::Collectives& own);

    // Returns the plan of UPDATE if it is not that of the one asked for before, else null. Every
    // rank calls it. The plan lives as long as this. Throws Error{kDiverged} if ranks come to plans
    // that do not fit together.
    [[nodiscard]] const plan::StepPlan* of(int64_t update);

  private:
    const JobSetup& setup_;
    runtime::Collectives& own_;
    StepKinds kinds_;
    plan::StepKind now_;
    std::deque<plan::StepPlan> plans_;
};

}  // namespace dslaunch::job
