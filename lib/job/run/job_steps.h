// The work of a job between its steps: broadcasts buffers, writes the parameters that forward
// writes, changes the plan if steps differ or chunks change their places, and traces one step.
// Steps can differ in the values that hosts exchange (1-bit Adam, 0/1 Adam) or in the parameters
// that are updated (lagging); their plans are made when they are first needed. With
// dslaunch.offload.placement auto, all ranks use the measurements of the last steps and the free
// memory, and agree on the chunks that the next steps keep in memory. Data path: trainer -> [here]
// -> placement control, step plans. Compute lane.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "job/predict/job_forecast.h"
#include "job/setup/job_setup.h"
#include "job/setup/step_kinds.h"
#include "plan/choose/placement_control.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/compute/parameter_writer.h"
#include "runtime/train/between_steps.h"
#include "runtime/watch/equal_check.h"

namespace dslaunch::job {

// The trace of a step, and the rates for its forecast.
struct StepsOptions {
    std::string output;             // folder of the trace; empty: no trace is written
    std::optional<JobRates> rates;  // for the forecast with which the traced step is compared;
                                    // nullopt: not measured
};

// The work between the steps of one rank. The trainer calls it.
class JobSteps final : public runtime::BetweenSteps {
  public:
    // The state that steps change, and the collectives of the ranks that train the same parameters.
    struct Parts {
        runtime::Collectives& own;
        runtime::ModelBuffers& buffers;
        runtime::ParameterState& state;
    };
    // Makes the steps of the rank at PLACE. SETUP and PARTS must outlive this object. The trainer
    // must begin with SETUP's plan.
    JobSteps(const JobSetup& setup, const runtime::Topology& place, const Parts& parts,
             StepsOptions options);

    // Both throw Error{kDiverged} if the ranks arrive at plans that do not fit together.
    [[nodiscard]] const plan::StepPlan* before_step(int64_t update) override;
    [[nodiscard]] const plan::StepPlan* after_step(const runtime::StepRun& run) override;
    // Throws Error{kDiverged} if the ranks' copies are compared after this step and are not equal.
    void end_step(int64_t step, double loss, bool skipped) override;
    void trace_step(const runtime::StepRun& run) override;

    // Returns a line for the log, after the last step, about the result of the adaptive placement.
    // Empty if chunks kept their places.
    [[nodiscard]] std::string placement_text() const {
        return placement_ ? placement_->summary() : "";
    }
    // Returns the options of the plan that kept the largest number of chunks in memory; nullopt if
    // no chunk has changed its place.
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
    runtime::ParameterState& state_;
    runtime::EqualCheck equal_check_;
    std::function<bool(int parameter)> written_here_;
    StepsOptions options_;
    std::optional<plan::PlacementControl> placement_;
    std::array<plan::StepPlan, 2> placed_;  // the plan in use, unless it is SETUP's, and the next
                                            // plan
    size_t next_placed_ = 0;
    std::optional<StepKinds> kinds_;    // set if updates differ
    plan::StepKind kind_;               // kind of the update that was asked for last
    std::deque<plan::StepPlan> plans_;  // plans of other kinds than SETUP's plan
};

}  // namespace dslaunch::job
