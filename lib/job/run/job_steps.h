// The work of this job between its steps: buffers are broadcast, parameters that forward writes are
// written, chunks change their places, one step is traced. Data path: trainer -> [here] -> adaptive
// placement, forecast. Compute lane.
#pragma once

#include <optional>
#include <string>

#include "job/predict/job_forecast.h"
#include "job/run/adaptive_placement.h"
#include "job/run/update_plans.h"
#include "job/setup/job_setup.h"
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
    // Makes the steps of the rank at PLACE. SETUP and PARTS must outlive this.
    JobSteps(const JobSetup& setup, const runtime::Topology& place, const Parts& parts,
             StepsOptions options);

    [[nodiscard]] const plan::StepPlan* before_step(int64_t update) override;
    void end_step(int64_t step, double loss, bool skipped) override;
    [[nodiscard]] const plan::StepPlan* after_step(const runtime::StepRun& run) override;
    void trace_step(const runtime::StepRun& run) override;

    // Null: chunks keep their places.
    [[nodiscard]] const AdaptivePlacement* placement() const {
        return placement_ ? &*placement_ : nullptr;
    }
    // The options of the plan that held most in memory; absent if chunks kept their places.
    [[nodiscard]] std::optional<plan::StepPlanOptions> largest() const {
        return placement_ ? std::optional(placement_->largest()) : std::nullopt;
    }

  private:
    const JobSetup& setup_;
    runtime::Topology place_;
    runtime::ModelBuffers& buffers_;
    runtime::ParameterWriter writer_;
    StepsOptions options_;
    std::optional<AdaptivePlacement> placement_;
    std::optional<UpdatePlans> plans_;  // if updates differ
};

}  // namespace dslaunch::job
