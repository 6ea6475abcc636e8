// How fast this machine runs a job, measured before it steps, and what a step of its plan will take
// by that. Where it stands: job setup -> [here] -> plan/step_forecast.h -> trace, `dslaunch plan`.
#pragma once

#include <vector>

#include "plan/step_forecast.h"
#include "worker/job_setup.h"

namespace dslaunch {

struct JobRates {
    std::vector<SegmentTimes> segments;
    MachineRates machine;
};

struct JobRatesOptions {
    int threads = 1;              // of a rank
    double link_bytes_per_s = 0;  // between hosts, 0: not known
};

// A micro batch for trial passes: the first rows of the data, or tokens of the context's length
// where the plan has no data.
[[nodiscard]] std::vector<c10::IValue> trial_batch(const JobSetup& setup);

// LibTorch's threads for trial passes, as RANKS of a host divide this machine's processors, unless
// OMP_NUM_THREADS says how many.
void set_rank_threads(int ranks);

// Of a rank of SETUP's job: times of segments, the optimizer's step over what a rank owns, sums;
// the disks as io-bench has stored them. Takes some steps' time; freed memory is kept meanwhile, as
// it is while training (worker/process_memory.h). Ranks of one host that call it together see what
// they take from each other. REQUIRES: not for a GPU.
[[nodiscard]] JobRates measure_job_rates(const JobSetup& setup, const JobRatesOptions& options);

// The plan's spans as RATES would have them on all stages. PLAN: of the rank of SETUP, which is at
// PLACE.
[[nodiscard]] std::vector<InstructionSpan> forecast_step(const StepPlan& plan,
                                                         const JobSetup& setup,
                                                         const Topology& place,
                                                         const JobRates& rates);

}  // namespace dslaunch
