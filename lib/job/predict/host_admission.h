// The check that a job fits the host it runs on: the plans of the host's ranks, and of the configs
// near its own, beside the limits that this process sees. Data path: job setup -> admission ->
// arena.
#pragma once

#include <optional>
#include <vector>

#include "job/setup/job_setup.h"
#include "plan/predict/admission.h"

namespace dslaunch::job {

struct HostAdmission {
    ProgramMemory program;  // before the plan takes memory, with buffers for saving and for other
                            // hosts
    plan::HostNeed need;
    std::vector<plan::TierVerdict> verdicts;
    std::string advice;  // empty: everything fits
    // The most rows in a micro batch with which everything would fit; nullopt: it does not fit as
    // it is, no limit is known, or nobody asked.
    std::optional<int64_t> most_rows;
};

// The need of the plans of all ranks on PLACE's host, whatever their stage, with PROGRAM in each
// rank.
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

// The admission of PLACE's host, and of a rank's GPU if SETUP is for GPUs. Throws Error{kDisk} for
// a folder of nvme_path that is not there.
[[nodiscard]] HostAdmission admit_host(const JobSetup& setup, const runtime::Topology& place,
                                       const AdmissionOptions& options);

}  // namespace dslaunch::job
