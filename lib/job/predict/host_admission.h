// The check that a job fits the host it runs on: the plans of the host's ranks, and of the configs
// near its own, beside the limits that this process sees. Data path: job setup -> [here] -> train
// role, arena.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "job/setup/job_setup.h"
#include "plan/predict/admission.h"

namespace dslaunch::runtime {
class Collectives;
class DeviceBackend;
struct TrainResult;
}  // namespace dslaunch::runtime

namespace dslaunch::job {

struct HostAdmission {
    ProgramMemory program;  // before the plan takes memory, with buffers for saving and for other
                            // hosts
    plan::HostNeed need;
    std::vector<plan::TierVerdict> verdicts;
    std::string advice;  // empty: everything fits
    // The most rows in a micro batch for which everything would fit; nullopt: it does not fit as it
    // is, no limit is known, or nobody asked.
    std::optional<int64_t> most_rows;
};

// Returns the need of the plans of all ranks on PLACE's host, whatever their stage, with PROGRAM in
// each rank.
[[nodiscard]] plan::HostNeed need_of_host(const JobSetup& setup, const runtime::Topology& place,
                                          const ProgramMemory& program);

struct AdmissionOptions {
    int processes = 1;  // processes like this one that hold their memory already: ranks of the job,
                        // or one that stands for a rank
    bool saves = true;  // true: the job saves checkpoints, which takes buffers
    bool finds_most_rows = false;  // true: HostAdmission::most_rows is searched
    // The memory of a rank's GPU; nullopt: not known, or there is none.
    std::optional<plan::DeviceRoom> device = {};
};

// Returns the admission of PLACE's host, and of a rank's GPU if SETUP is for GPUs. Throws
// Error{kDisk} for a folder of nvme_path that is not there.
[[nodiscard]] HostAdmission admit_host(const JobSetup& setup, const runtime::Topology& place,
                                       const AdmissionOptions& options);

// The check of a host's memory before the job takes it, and at the end the error of the estimate.
// One thread.
class JobRoom {
  public:
    // Called by the first rank of each host, at PLACE, for all ranks of that host; on GPUs by every
    // rank, for its own. Throws what require_admission() does. SAVES: the job saves checkpoints.
    // DEVICE is null on the CPU.
    void check_host(const JobSetup& setup, const runtime::Topology& place, bool saves,
                    runtime::DeviceBackend* device);
    // Returns "202.2 MiB of 22.34 GiB (MemAvailable of /proc/meminfo) for the 2 ranks of a host",
    // and so for each other limit. Empty if none was looked at. Called by a host's first rank.
    [[nodiscard]] std::string text() const;
    // Returns "202.2 MiB of 22.34 GiB": the first of these limits; empty as text() is.
    [[nodiscard]] std::string brief() const;
    // Called by all ranks of the JOB: makes the estimate the largest of all from then on, for hosts
    // may have other stages of a pipeline.
    void agree(runtime::Collectives& job);
    // Called by the job's first rank after training: logs the estimate beside the peak of the rank
    // that had most, on GPUs beside the peak of LibTorch's allocator, which lends NCCL nothing.
    // OPTIONS: the options of the plan that held most, if plans changed between steps; they become
    // SETUP's.
    void compare(JobSetup& setup, const runtime::Topology& place,
                 const std::optional<plan::StepPlanOptions>& options,
                 const runtime::TrainResult& result);

  private:
    std::optional<HostAdmission> admission_;  // present on the first rank of a host
    Bytes estimate_;                          // need of the rank that needs most; 0: none was made
};

}  // namespace dslaunch::job
