// The rates at which this machine runs a job, measured before the job steps, and the time that a
// step of its plan will take by them. Data path: job setup -> [here] ->
// plan/predict/step_forecast.h -> trace, `dslaunch plan`.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "job/predict/measuring_neighbours.h"
#include "job/setup/job_setup.h"
#include "plan/predict/known_devices.h"
#include "plan/predict/step_forecast.h"

namespace dslaunch::job {

struct JobRates {
    std::vector<plan::SegmentTimes> segments;
    plan::MachineRates machine;
};

struct JobRatesOptions {
    int threads = 1;              // threads of a rank
    double link_bytes_per_s = 0;  // rate between hosts; 0: not known
    // Called before each kind of work; empty: no call.
    std::function<void(MeasuredWork)> before = {};
};

// Sets LibTorch's threads for trial passes, as RANKS of a host divide this machine's processors,
// unless OMP_NUM_THREADS says how many.
void set_rank_threads(int ranks);

// Returns the rates of a rank of SETUP's job: times of segments, of the optimizer's step over the
// rank's own part, of sums; the disks' as io-bench has stored them. Takes some steps' time; freed
// memory is kept meanwhile, as in training (job/process/process_resources.h). Ranks of one host
// that call this together measure how they slow each other. REQUIRES: SETUP is not for a GPU.
[[nodiscard]] JobRates measure_job_rates(const JobSetup& setup, const JobRatesOptions& options);

struct GivenRates {
    double flops_per_s = 0;
    double link_bytes_per_s = 0;
};
// Returns the rates of a rank of SETUP's job on a GPU of that kind, from its peaks: a step takes no
// less. Nullopt if its speed at products in the config's precision is not known. A rate in GIVEN
// takes precedence.
[[nodiscard]] std::optional<JobRates> rates_on_gpu(const JobSetup& setup,
                                                   const plan::DeviceRates& device,
                                                   const GivenRates& given);

struct HostRates {
    JobRates rates;
    int beside = 0;  // processes that worked beside this one
};
// Returns the rates of a rank if this machine, which may have fewer processors, ran RANKS of them:
// processes are started to work beside this one, as many as processors and memory allow. Throws
// Error{kUsage} for a model whose weights are not there.
[[nodiscard]] HostRates measure_host_rates(const JobSetup& setup, int ranks,
                                           double link_bytes_per_s);

// Called in such a process (measuring_neighbours.h).
inline constexpr const char* kMeasureBesideOption = "--measure-beside";
void measure_beside_rank(const JobSetup& setup, int ranks);

// Returns the spans of PLAN's instructions if all stages run at RATES. PLAN is the plan of SETUP's
// rank, which is at PLACE.
[[nodiscard]] std::vector<plan::InstructionSpan> forecast_step(const plan::StepPlan& plan,
                                                               const JobSetup& setup,
                                                               const runtime::Topology& place,
                                                               const JobRates& rates);

}  // namespace dslaunch::job
