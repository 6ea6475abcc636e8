// The check that a job fits on the host it runs on. Compares the plans of the host's ranks, and the
// plans of similar configs, with the limits that this process sees. Data path: job setup -> [here]
// -> train role, arena.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "job/setup/job_setup.h"
#include "plan/predict/admission.h"

namespace dslaunch::runtime {
class Collectives;
class DeviceBackend;
struct TrainResult;
}  // namespace dslaunch::runtime

namespace dslaunch::job {

// The result of admit_host() for one host.
struct HostAdmission {
    ProgramMemory program;  // memory in use before the plan takes any, including buffers for saving
                            // and for other hosts
    plan::HostNeed need;
    std::vector<plan::TierVerdict> verdicts;
    std::string advice;  // empty: everything fits
    // The largest number of rows in a micro batch with which everything would fit. nullopt: the job
    // does not fit even as it is, no limit is known, or no search was made.
    std::optional<int64_t> most_rows;
};

// Returns the memory and the disk space that all ranks on PLACE's host need together, whatever
// their stages are. Each rank also needs PROGRAM.
[[nodiscard]] plan::HostNeed need_of_host(const JobSetup& setup, const runtime::Topology& place,
                                          const ProgramMemory& program);

// Facts for an admission that JobSetup does not contain.
struct AdmissionOptions {
    int processes = 1;  // number of processes that already hold as much memory as this process: the
                        // job's ranks, or this process alone
    bool saves = true;  // true: the job saves checkpoints, which takes buffers
    bool finds_most_rows = false;  // true: HostAdmission::most_rows is searched
    // The memory of a rank's GPU; nullopt: it is not known, or there is no GPU.
    std::optional<plan::DeviceRoom> device = {};
};

// Decides whether the job fits on PLACE's host and, if SETUP is for GPUs, on a rank's GPU. Returns
// the result. Throws Error{kDisk} if a folder of nvme_path does not exist.
[[nodiscard]] HostAdmission admit_host(const JobSetup& setup, const runtime::Topology& place,
                                       const AdmissionOptions& options);

// The memory of a rank as it was estimated, and as it was measured.
struct ComparedMemory {
    std::string place;  // "a rank" or "a GPU"
    Bytes estimated, measured;
};

// Returns MEMORY as a JSON object, the value of the member "result" in run.json.
[[nodiscard]] std::string result_json(const ComparedMemory& memory);

// Checks a host's memory before the job takes it, and at the end of the job reports how good the
// estimate was. Used by one thread.
class JobRoom {
  public:
    // On CPUs, called by the first rank of each host for all ranks of the host. On GPUs, every rank
    // calls it for itself. PLACE is the caller's place. Throws what require_admission() throws.
    // SAVES is true if the job saves checkpoints. DEVICE is null on the CPU.
    void check_host(const JobSetup& setup, const runtime::Topology& place, bool saves,
                    runtime::DeviceBackend* device);
    // Returns a text with one part for each limit, such as "202.2 MiB of 22.34 GiB (MemAvailable of
    // /proc/meminfo) for the 2 ranks of a host". Empty if no limit was checked. Called by a host's
    // first rank.
    [[nodiscard]] std::string text() const;
    // Returns the first part of text() without the limit's name, "202.2 MiB of 22.34 GiB"; empty if
    // no limit was checked.
    [[nodiscard]] std::string brief() const;
    // Called by all ranks of the JOB. Replaces the estimate by the largest estimate of all ranks,
    // since other hosts may have different stages of a pipeline.
    void agree(runtime::Collectives& job);
    // Called by the job's first rank after training. Logs the estimate and the measured peak of the
    // rank that used most memory. On GPUs, this is the peak of LibTorch's allocator, which does not
    // include NCCL's memory. If the plan changed between steps, OPTIONS are the options of the plan
    // that used most memory; otherwise SETUP's options are used. Returns the logged values, or
    // nullopt if there is no estimate.
    std::optional<ComparedMemory> compare(JobSetup& setup, const runtime::Topology& place,
                                          const std::optional<plan::StepPlanOptions>& options,
                                          const runtime::TrainResult& result);

  private:
    std::optional<HostAdmission> admission_;  // present on the first rank of a host
    Bytes estimate_;                          // memory of the rank that needs most; 0: no estimate
};

}  // namespace dslaunch::job
