// Whether a job fits the host it runs on: the plans of the host's ranks, and of the configs near
// its own, beside the limits that this process sees. Data path: job setup -> admission ->
// arena.
#pragma once

#include <vector>

#include "job/setup/job_setup.h"
#include "plan/predict/admission.h"

namespace dslaunch::job {

struct HostAdmission {
    ProgramMemory program;  // as it was before anything of the plan was taken, and saving
    plan::HostNeed need;
    std::vector<plan::TierVerdict> verdicts;
    std::string advice;  // where something does not fit
};

// What the plans of the ranks on PLACE's host need, of all stages there, beside PROGRAM in each
// rank.
[[nodiscard]] plan::HostNeed need_of_host(const JobSetup& setup, const runtime::Topology& place,
                                          const ProgramMemory& program);

struct AdmissionOptions {
    int processes = 1;  // like this one that hold their memory already and are ranks of the job, or
                        // stand for one
    bool saves = true;  // checkpoints, which takes buffers
};

// Of PLACE's host. REQUIRES: not for a GPU. Throws Error{kDisk} for a folder of nvme_path that is
// not there.
[[nodiscard]] HostAdmission admit_host(const JobSetup& setup, const runtime::Topology& place,
                                       const AdmissionOptions& options);

}  // namespace dslaunch::job
