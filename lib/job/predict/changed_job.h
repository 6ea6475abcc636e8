// The setup and the plan that a job would have with another config. The job is not set up again.
// Data path: job setup -> [here] -> admission of other configs, forecasts for `dslaunch tune`. Runs
// nothing.
#pragma once

#include <optional>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Returns a copy of SETUP in which CONFIG replaces the job's config. The copy is for the rank at
// PLACE. It has no model and no data. Scales the model's bytes and FLOPs to the number of rows in
// CONFIG's micro batch. Returns nullopt if the config cannot be run with this model and these
// ranks.
[[nodiscard]] std::optional<JobSetup> changed_job(const JobSetup& setup,
                                                  const runtime::Topology& place,
                                                  config::RunConfig config);

}  // namespace dslaunch::job
