// The first rank describes a job before training: in a few lines of the log, and completely in
// run.json.
#pragma once

#include <string>

#include "job/setup/job_setup.h"
#include "launch/plan/worker_environment.h"
#include "runtime/train/reporter.h"

namespace dslaunch::job {

// The facts that the description needs and that JobSetup does not contain.
struct RunFacts {
    std::string model;
    std::string output;               // folder of the run; empty: nothing is kept
    std::string memory;               // JobRoom::text()
    std::string memory_brief;         // JobRoom::brief()
    int threads = 1;                  // of each rank
    int64_t byte_vocabulary_max = 0;  // largest vocabulary that `generate` treats as bytes
};

// Logs one line each about the model, the data, the training, the folder of the results, and
// differences from the request. Everything else is logged as details.
void describe_run(const JobSetup& setup, const RunFacts& facts,
                  const launch::WorkerEnvironment& environment, runtime::Reporter& reporter);

// Returns a text which says that the buffers of each rank change separately. It names the buffers
// that the model computes with, since they would have different values in a single process.
[[nodiscard]] std::string own_buffers_text(const JobSetup& setup);

}  // namespace dslaunch::job
