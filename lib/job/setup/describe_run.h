// The first rank's description of a job before training, in the log and for run.json.
#pragma once

#include "job/setup/job_setup.h"
#include "launch/plan/worker_environment.h"
#include "runtime/train/reporter.h"

namespace dslaunch::job {

void describe_run(const JobSetup& setup, const launch::WorkerEnvironment& environment,
                  runtime::Reporter& reporter);

}  // namespace dslaunch::job
