// Starts and ends a process that is a rank of a job, and runs the roles of dsworker that one
// process can do alone or the ranks of a job together. Data path: dslaunch -> environment -> [here]
// -> the role. One thread, except for the heartbeats.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "job/process/rank_failure.h"
#include "launch/plan/worker_environment.h"
#include "runtime/train/reporter.h"

namespace dslaunch::worker {

// Sets up LibTorch's log and our own as the launcher's variables say, and returns this rank's place
// in its job.
[[nodiscard]] launch::WorkerEnvironment begin_rank();

// Tells the launcher why this rank fails, logs the reason under the name SPEAKER, and ends the
// process.
[[noreturn]] void end_rank(runtime::Reporter& reporter, const job::RankFailure& failure,
                           const char* speaker);

// This process as a rank of a job. If no launcher started it, it runs alone, and `reporter` is
// null.
struct RankProcess {
    launch::WorkerEnvironment environment;
    std::unique_ptr<runtime::Reporter> reporter;
    // Called when the rank fails, before the process ends: it releases the ranks that wait for this
    // one.
    std::function<void(const std::string& why)> on_failure;

    // Returns true for the rank that reads the input and writes the result.
    [[nodiscard]] bool is_first() const { return environment.rank == 0; }
    // Returns true if the launcher asked this rank to end.
    [[nodiscard]] bool asked_to_end() const { return reporter && reporter->asked_to_end(); }
};

// Runs WORK and returns 0. If WORK throws in a rank of a job, tells the launcher why and ends the
// process. Outside a job, the caller gets the error.
int run_as_rank(const std::function<void(RankProcess& process)>& work);

}  // namespace dslaunch::worker
