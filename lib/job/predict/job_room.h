// Whether a job has the memory that it is about to take on its hosts, and at the end how far off
// the estimate was. Data path: job setup -> host admission -> [here] -> train role. One
// thread.
#pragma once

#include <optional>

#include "job/predict/adaptive_placement.h"
#include "job/predict/host_admission.h"

namespace dslaunch::job {

class JobRoom {
  public:
    // By the first rank of each host, PLACE, for all its ranks: throws what require_admission()
    // does. The job's first rank logs the table. SAVES: checkpoints, too.
    void check_host(const JobSetup& setup, const runtime::Topology& place, bool saves);
    // By all ranks of the JOB, for hosts may have other stages of a pipeline: from now on the
    // estimate is the largest of all.
    void agree(runtime::Collectives& job);
    // By the job's first rank, after training: logs the estimate beside PEAK_RSS. PLACEMENT: null
    // where it was fixed; else the estimate is of the one that had most in memory, whose plan
    // options become SETUP's.
    void compare(JobSetup& setup, const runtime::Topology& place,
                 const AdaptivePlacement* placement, Bytes peak_rss);

  private:
    std::optional<HostAdmission> admission_;  // of the first rank of a host
    Bytes estimate_;  // of the rank that is said to need most; 0: there is none
};

}  // namespace dslaunch::job
