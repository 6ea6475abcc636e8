// How fast this machine runs a job, measured before it steps, and what a step of its plan will take
// by that. Data path: job setup -> [here] -> plan/predict/step_forecast.h -> trace, `dslaunch
// plan`.
#pragma once

#include <functional>
#include <vector>

#include "job/predict/measuring_neighbours.h"
#include "job/setup/job_setup.h"
#include "plan/predict/step_forecast.h"

namespace dslaunch::job {

struct JobRates {
    std::vector<plan::SegmentTimes> segments;
    plan::MachineRates machine;
};

struct JobRatesOptions {
    int threads = 1;              // of a rank
    double link_bytes_per_s = 0;  // between hosts, 0: not known
    // Called before each kind of work; empty: nobody wants to know.
    std::function<void(MeasuredWork)> before = {};
};

// LibTorch's threads for trial passes, as RANKS of a host divide this machine's processors, unless
// OMP_NUM_THREADS says how many.
void set_rank_threads(int ranks);

// Of a rank of SETUP's job: times of segments, the optimizer's step over what a rank owns, sums;
// the disks as io-bench has stored them. Takes some steps' time; freed memory is kept meanwhile, as
// it is while training (job/process/process_memory.h). Ranks of one host that call it together see
// what they take from each other. REQUIRES: not for a GPU.
[[nodiscard]] JobRates measure_job_rates(const JobSetup& setup, const JobRatesOptions& options);

// As a rank finds it on a host of RANKS that is this machine, which may have fewer processors:
// processes that are started for it work beside this one, as many as there are processors and
// memory for.
struct HostRates {
    JobRates rates;
    int beside = 0;  // processes
};
[[nodiscard]] HostRates measure_host_rates(const JobSetup& setup, int ranks,
                                           double link_bytes_per_s);

// In such a process (measuring_neighbours.h).
inline constexpr const char* kMeasureBesideOption = "--measure-beside";
void measure_beside_rank(const JobSetup& setup, int ranks);

// The plan's spans as RATES would have them on all stages. PLAN: of the rank of SETUP, which is at
// PLACE.
[[nodiscard]] std::vector<plan::InstructionSpan> forecast_step(const plan::StepPlan& plan,
                                                               const JobSetup& setup,
                                                               const runtime::Topology& place,
                                                               const JobRates& rates);

}  // namespace dslaunch::job
