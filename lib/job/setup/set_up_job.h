// Makes a job's setup: finds and resolves the config, opens the model and the data and checks that
// they fit together, measures the model, and lays out the job. Data path: command line, archive ->
// [here] -> roles.
#pragma once

#include "job/setup/job_setup.h"

namespace dslaunch::job {

// Returns the setup of the rank at PLACE in the job. Throws Error{kConfig} with all problems of the
// config, and Error{kInput} for problems with the model and the data.
[[nodiscard]] JobSetup set_up_job(const JobArguments& arguments, const runtime::Topology& place);

// Returns the config of the same job without opening its data, so epochs are not converted to a
// number of steps. Throws what set_up_job() throws.
[[nodiscard]] config::RunConfig config_of_job(const JobArguments& arguments,
                                              const runtime::Topology& place);

}  // namespace dslaunch::job
