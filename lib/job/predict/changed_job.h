// A job as it would be with another config: its plan, without setting it up once more. Data path:
// job setup -> [here] -> admission of other configs, forecasts for `dslaunch tune`. Runs nothing.
#pragma once

#include <optional>

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Returns SETUP's job with CONFIG, as seen from the rank at PLACE, without model and data. Bytes
// and FLOPs of the model are scaled to CONFIG's micro batch, as if all rows needed the same.
// Returns nullopt if the config cannot be run with this model and these ranks.
[[nodiscard]] std::optional<JobSetup> changed_job(const JobSetup& setup,
                                                  const runtime::Topology& place,
                                                  config::RunConfig config);

}  // namespace dslaunch::job
