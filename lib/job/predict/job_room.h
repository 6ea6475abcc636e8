// The check that a job has the memory that it is about to take on its hosts, and at the end the
// error of the estimate. Data path: job setup -> host admission -> [here] -> train role. One
// thread.
#pragma once

#include <optional>
#include <string>

#include "job/predict/host_admission.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/device_backend.h"
#include "runtime/train/trainer.h"

namespace dslaunch::job {

class JobRoom {
  public:
    // Called by the first rank of each host, at PLACE, for all ranks of that host; on GPUs by every
    // rank, for its own. Throws what require_admission() does. SAVES: the job saves checkpoints.
    // DEVICE is null on the CPU.
    void check_host(const JobSetup& setup, const runtime::Topology& place, bool saves,
                    runtime::DeviceBackend* device);
    // "202.2 MiB of 22.34 GiB (MemAvailable of /proc/meminfo) for the 2 ranks of a host", and so
    // for each other limit. Empty where none was looked at. Called by the first rank of a host.
    [[nodiscard]] std::string text() const;
    // "202.2 MiB of 22.34 GiB": the first of these limits; empty as text() is.
    [[nodiscard]] std::string brief() const;
    // Called by all ranks of the JOB, for hosts may have other stages of a pipeline: from then on
    // the estimate is the largest of all.
    void agree(runtime::Collectives& job);
    // Called by the job's first rank after training: logs the estimate beside the peak of the rank
    // that had most, on GPUs beside that of LibTorch's allocator, which lends NCCL nothing.
    // OPTIONS: those of the plan that held most, if plans changed between steps; they become
    // SETUP's.
    void compare(JobSetup& setup, const runtime::Topology& place,
                 const std::optional<plan::StepPlanOptions>& options,
                 const runtime::TrainResult& result);

  private:
    std::optional<HostAdmission> admission_;  // present on the first rank of a host
    Bytes estimate_;                          // need of the rank that needs most; 0: none was made
};

}  // namespace dslaunch::job
