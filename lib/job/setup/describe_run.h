// The first rank's description of a job before training: a few lines in the log, all of it for
// run.json.
#pragma once

#include <string>

#include "job/setup/job_setup.h"
#include "launch/plan/worker_environment.h"
#include "runtime/train/reporter.h"

namespace dslaunch::job {

struct RunFacts {
    std::string model;
    std::string output;               // empty: nothing is kept
    std::string memory;               // JobRoom::text()
    std::string memory_brief;         // JobRoom::brief()
    int threads = 1;                  // of each rank
    int64_t byte_vocabulary_max = 0;  // vocabularies that `generate` takes for bytes
};

// Shows in a line each the model, the data, the training, the place of results, and what differs
// from the request; the rest are details, for the logs.
void describe_run(const JobSetup& setup, const RunFacts& facts,
                  const launch::WorkerEnvironment& environment, runtime::Reporter& reporter);

// Says that each rank's buffers move on their own; names the buffers that the model computes with,
// since one process would have other values in them.
[[nodiscard]] std::string own_buffers_text(const JobSetup& setup);

}  // namespace dslaunch::job
