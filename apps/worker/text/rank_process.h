// A role of dsworker that one process runs alone or that the ranks of a job share: its environment,
// its reports to the launcher, and the end of a rank that fails. Data path: dslaunch -> environment
// -> [here] -> the role. One thread but for the heartbeats.
#pragma once

#include <functional>
#include <memory>

#include "launch/plan/worker_environment.h"
#include "runtime/train/reporter.h"

namespace dslaunch::worker {

struct RankProcess {
    launch::WorkerEnvironment environment;
    std::unique_ptr<runtime::Reporter> reporter;
    // Called when the rank fails, before the process ends: it frees the ranks that wait for it.
    std::function<void(const std::string& why)> on_failure;

    [[nodiscard]] bool is_first() const { return environment.rank == 0; }
    [[nodiscard]] bool asked_to_end() const { return reporter && reporter->asked_to_end(); }
};

// Runs WORK and returns 0. In a job, the process ends here when WORK throws, after the launcher is
// told why; elsewhere what WORK throws goes on.
int run_as_rank(const std::function<void(RankProcess& process)>& work);

}  // namespace dslaunch::worker
