// dslaunch.offload.placement auto: between two steps all ranks look at what the last ones measured
// and at the memory that is free, and agree on the chunks that the next steps keep in memory. Where
// it stands: trainer -> adaptive placement -> placement control, step plan. Compute lane's thread.
#pragma once

#include <array>
#include <string>

#include "job/setup/job_setup.h"
#include "plan/offload/placement_control.h"
#include "runtime/comm/collectives.h"
#include "runtime/train/between_steps.h"

namespace dslaunch::job {

class AdaptivePlacement {
  public:
    // Both must outlive this. REQUIRES: SETUP's plan is PLACE's rank's, and its offload adaptive.
    AdaptivePlacement(const JobSetup& setup, const runtime::Topology& place,
                      runtime::Collectives& collectives);

    // After each step, by every rank: the plan of the next ones where it is another one, else null.
    // It is there until the next but one is returned. Blocks for the other ranks where it is
    // chosen. Throws Error{kDiverged} where ranks come to plans that do not fit together.
    [[nodiscard]] const plan::StepPlan* after_step(const runtime::StepRun& run);

    // What came of it, a line for the log. After the last step.
    [[nodiscard]] std::string summary() const { return control_.summary(); }
    // The options of the plan that had most in memory.
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
    std::array<plan::StepPlan, 2> plans_;  // the one that runs, unless it is the setup's, and the
                                           // next
    size_t next_ = 0;
};

}  // namespace dslaunch::job
