// The beginning and the end of a process that is a rank of a job, and roles of dsworker that one
// process runs alone or that the ranks of a job share. Data path: dslaunch -> environment -> [here]
// -> the role. One thread but for the heartbeats.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "launch/plan/worker_environment.h"
#include "runtime/train/reporter.h"

namespace dslaunch::worker {

// Returns this rank's place in its job, after LibTorch's log and our own are set up as the launcher
// says.
[[nodiscard]] launch::WorkerEnvironment begin_rank();

struct RankFailure {
    ExitCode code = ExitCode::kInternal;
    std::string message;
};
// Returns the exit code and the words for an error of any kind; memory that runs out counts as a
// fault of the set-up. REQUIRES: an exception of std.
[[nodiscard]] RankFailure failure_of(const std::exception_ptr& error);
// Tells the launcher why this rank fails, logs it as SPEAKER, and ends the process.
[[noreturn]] void end_rank(runtime::Reporter& reporter, const RankFailure& failure,
                           const char* speaker);

struct RankProcess {
    launch::WorkerEnvironment environment;
    std::unique_ptr<runtime::Reporter> reporter;
    // Called when the rank fails, before the process ends: it frees the ranks that wait for it.
    std::function<void(const std::string& why)> on_failure;

    [[nodiscard]] bool is_first() const { return environment.rank == 0; }
    [[nodiscard]] bool asked_to_end() const { return reporter && reporter->asked_to_end(); }
};

// Runs WORK and returns 0. In a job, the process ends here when WORK throws, after it tells the
// launcher why; elsewhere the error goes on.
int run_as_rank(const std::function<void(RankProcess& process)>& work);

}  // namespace dslaunch::worker
