// dslaunch.offload.placement auto: between two steps all ranks look at the measurements of the last
// steps and at the free memory, and agree on the chunks that the next steps keep in memory. Data
// path: trainer -> adaptive placement -> placement control, step plan. Compute lane's thread.
#pragma once

#include <array>
#include <string>

#include "job/setup/job_setup.h"
#include "plan/choose/placement.h"
#include "runtime/comm/collectives.h"
#include "runtime/train/between_steps.h"

namespace dslaunch::job {

class AdaptivePlacement {
  public:
    // SETUP and COLLECTIVES must outlive this. REQUIRES: SETUP's plan is that of the rank at PLACE,
    // with adaptive offload.
    AdaptivePlacement(const JobSetup& setup, const runtime::Topology& place,
                      runtime::Collectives& collectives);

    // Called after each step by every rank. Returns the plan of the next steps if it changes, else
    // null. The plan lives until the next but one is returned. Blocks for the other ranks when a
    // plan is chosen. Throws Error{kDiverged} if ranks come to plans that do not fit together.
    [[nodiscard]] const plan::StepPlan* after_step(const runtime::StepRun& run);

    // The outcome, a line for the log. Called after the last step.
    [[nodiscard]] std::string summary() const { return control_.summary(); }
    // The options of the plan that kept most chunks in memory.
    [[nodiscard]] plan::StepPlanOptions largest() const {
        return options_with(control_.kept_most());
    }

  private:
    [[nodiscard]] plan::StepPlanOptions options_with(int64_t kept) const;
    [[nodiscard]] plan::PlacementFacts own_facts(const plan::StepPlan& plan) const;

    const JobSetup& setup_;
    runtime::Topology place_;
    runtime::Collectives& collectives_;
    plan::PlacementControl control_;
    std::array<plan::StepPlan, 2> plans_;  // the plan that runs, unless it is SETUP's, and the next
    size_t next_ = 0;
};

}  // namespace dslaunch::job
