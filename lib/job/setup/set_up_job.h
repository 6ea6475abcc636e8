// Makes a job's setup: finds and resolves the config, opens model and data and checks them against
// each other, measures the model, and lays all out. Data path: command line, archive -> [here] ->
// roles.
#pragma once

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Returns the setup of the rank at PLACE in the job. Throws Error{kConfig} with all problems of the
// config, Error{kInput} for model and data.
[[nodiscard]] JobSetup set_up_job(const JobArguments& arguments, const runtime::Topology& place);

// Returns that job's config, without its data: epochs have no number of steps. Throws the same.
[[nodiscard]] config::RunConfig config_of_job(const JobArguments& arguments,
                                              const runtime::Topology& place);

}  // namespace dslaunch::job
