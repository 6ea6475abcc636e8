// The first rank's description of a job before training: a few lines in the log, all of it for
// run.json.
#pragma once

#include <string>

#include "job/setup/job_setup.h"
#include "launch/plan/worker_environment.h"
#include "runtime/train/reporter.h"

namespace dslaunch::job {

struct RunPlaces {
    std::string model;
    std::string output;  // empty: nothing is kept
};

// MEMORY: what the host's ranks need beside what there is; empty: not looked at.
void describe_run(const JobSetup& setup, const std::string& memory, const RunPlaces& places,
                  const launch::WorkerEnvironment& environment, runtime::Reporter& reporter);

// What it means that each rank's buffers move on their own; names those that the model computes
// with, since one process would have other values in them.
[[nodiscard]] std::string own_buffers_text(const JobSetup& setup);

}  // namespace dslaunch::job
