// The rates at which this machine runs a job, measured before the first step, and the time that a
// step of its plan will take at these rates. Data path: job setup -> [here] ->
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

// The times of the model's segments and the rates of the machine, both for one rank.
struct JobRates {
    std::vector<plan::SegmentTimes> segments;
    plan::MachineRates machine;
};

// Facts for a measurement that JobSetup does not contain.
struct JobRatesOptions {
    int threads = 1;              // threads of a rank
    double link_bytes_per_s = 0;  // rate between hosts; 0: not known
    int rounds = 5;               // measured passes over the segments, after one warm-up
    // Called before each kind of work is measured. May be empty.
    std::function<void(MeasuredWork)> before = {};
};

// Returns the measured rates of a rank of SETUP's job: the times of segments, the speed of the
// optimizer's step over the rank's own part, and the speed of sums. The rates of disks are what
// io-bench has stored. Takes as long as a few steps. Freed memory is kept during the measurement,
// as in training (job/process/process_resources.h). If the ranks of a host call this at the same
// time, the result includes how much they slow each other. REQUIRES: SETUP is not for a GPU.
[[nodiscard]] JobRates measure_job_rates(const JobSetup& setup, const JobRatesOptions& options);

// Rates from the command line; 0: not given.
struct GivenRates {
    double flops_per_s = 0;
    double link_bytes_per_s = 0;
};
// Returns the rates of a rank of SETUP's job on a GPU. DEVICE gives the peak rates of this kind of
// GPU. The result is computed from these peaks, so a real step takes at least as long. Returns
// nullopt if the rate of matrix products in the config's precision is not known. Rates in GIVEN
// take precedence.
[[nodiscard]] std::optional<JobRates> rates_on_gpu(const JobSetup& setup,
                                                   const plan::DeviceRates& device,
                                                   const GivenRates& given);

// The result of measure_host_rates().
struct HostRates {
    JobRates rates;
    int beside = 0;  // processes that worked beside this process
};
// Returns the rates that a rank would have if this machine ran RANKS ranks, even if it has fewer
// processors. Starts processes that work beside this process, as many as processors and memory
// allow. Throws Error{kUsage} if the weights of the model do not exist.
[[nodiscard]] HostRates measure_host_rates(const JobSetup& setup, int ranks,
                                           double link_bytes_per_s);

// Called in a process that was started to work beside another process (measuring_neighbours.h).
inline constexpr const char* kMeasureBesideOption = "--measure-beside";
void measure_beside_rank(const JobSetup& setup, int ranks);

// Returns the predicted spans of PLAN's instructions, if all stages run at RATES. PLAN is the plan
// of SETUP's rank, which is at PLACE.
[[nodiscard]] std::vector<plan::InstructionSpan> forecast_step(const plan::StepPlan& plan,
                                                               const JobSetup& setup,
                                                               const runtime::Topology& place,
                                                               const JobRates& rates);

}  // namespace dslaunch::job
