// The work of this job between its steps: buffers are broadcast, parameters that forward writes are
// written, the plan changes where steps differ or chunks change their places, one step is traced.
// Steps differ in what hosts exchange (1-bit Adam, 0/1 Adam) or in which parameters are updated
// (lagging); their plans are made when they are first needed. With dslaunch.offload.placement auto
// all ranks look at the measurements of the last steps and at the free memory, and agree on the
// chunks that the next steps keep in memory. Data path: trainer -> [here] -> placement control,
// step plans. Compute lane.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "job/predict/job_forecast.h"
#include "job/setup/job_setup.h"
#include "job/setup/step_kinds.h"
#include "plan/choose/placement.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/compute/parameter_writer.h"
#include "runtime/train/between_steps.h"

namespace dslaunch::job {

struct StepsOptions {
    std::string output;             // folder of the trace; empty: there is none
    std::optional<JobRates> rates;  // rates for the forecast that the traced step is compared with,
                                    // if measured
};

class JobSteps final : public runtime::BetweenSteps {
  public:
    // The state that steps change, and the collectives of the ranks that train the same parameters.
    struct Parts {
        runtime::Collectives& own;
        runtime::ModelBuffers& buffers;
        runtime::WritableState& state;
    };
    // Makes the steps of the rank at PLACE. SETUP and PARTS must outlive this, and the trainer
    // begins with SETUP's plan.
    JobSteps(const JobSetup& setup, const runtime::Topology& place, const Parts& parts,
             StepsOptions options);

    // These two throw Error{kDiverged} if ranks come to plans that do not fit together.
    [[nodiscard]] const plan::StepPlan* before_step(int64_t update) override;
    [[nodiscard]] const plan::StepPlan* after_step(const runtime::StepRun& run) override;
    void end_step(int64_t step, double loss, bool skipped) override;
    void trace_step(const runtime::StepRun& run) override;

    // Returns the result of the adaptive placement, a line for the log after the last step; empty:
    // chunks kept their places.
    [[nodiscard]] std::string placement_text() const {
        return placement_ ? placement_->summary() : "";
    }
    // Returns the options of the plan that held most in memory; absent if chunks kept their places.
    [[nodiscard]] std::optional<plan::StepPlanOptions> largest() const {
        return placement_ ? std::optional(options_with(placement_->kept_most())) : std::nullopt;
    }

  private:
    [[nodiscard]] const plan::StepPlan* plan_of(int64_t update);
    [[nodiscard]] plan::StepPlanOptions options_with(int64_t kept) const;
    [[nodiscard]] plan::PlacementFacts own_facts(const plan::StepPlan& plan) const;

    const JobSetup& setup_;
    runtime::Topology place_;
    runtime::Collectives& own_;
    runtime::ModelBuffers& buffers_;
    runtime::WritableState& state_;
    std::function<bool(int parameter)> written_here_;
    StepsOptions options_;
    std::optional<plan::PlacementControl> placement_;
    std::array<plan::StepPlan, 2> placed_;  // the plan that runs, unless it is SETUP's, and the
                                            // next
    size_t next_placed_ = 0;
    std::optional<StepKinds> kinds_;    // if updates differ
    plan::StepKind kind_;               // of the update that was asked for last
    std::deque<plan::StepPlan> plans_;  // of kinds other than SETUP's plan
};

}  // namespace dslaunch::job
