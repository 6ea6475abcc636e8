// Starts and ends a process that is a rank of a job. Also runs roles of dsworker that need either
// one process or all ranks of a job. Data path: dslaunch -> environment -> [here] -> the role. One
// thread, except for the heartbeats.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "job/process/rank_failure.h"
#include "launch/plan/worker_environment.h"
#include "runtime/train/reporter.h"

namespace dslaunch::worker {

// Sets up the logs of LibTorch and of dslaunch from the launcher's variables. Returns this rank's
// place in its job.
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
    // Called when the rank fails, before the process ends. It makes the ranks that wait for this
    // rank fail too.
    std::function<void(const std::string& why)> on_failure;

    // Returns true for the rank that reads the input and writes the result.
    [[nodiscard]] bool is_first() const { return environment.rank == 0; }
    // Returns true if the launcher asked this rank to end.
    [[nodiscard]] bool asked_to_end() const { return reporter && reporter->asked_to_end(); }
};

// Runs WORK and returns 0. If WORK throws in a rank of a job, reports the error to the launcher and
// ends the process. Outside a job, throws the error of WORK.
int run_as_rank(const std::function<void(RankProcess& process)>& work);

}  // namespace dslaunch::worker
