// What the first rank of a job says of it before training: to people, and for run.json.
#pragma once

#include "launch/worker_environment.h"
#include "runtime/reporter.h"
#include "worker/job_setup.h"

namespace dslaunch {

void describe_run(const JobSetup& setup, const WorkerEnvironment& environment, Reporter& reporter);

}  // namespace dslaunch
