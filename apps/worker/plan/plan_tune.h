// The configs that `dslaunch tune` considers for a job, with a forecast of time and memory for
// each. Data path: job setup -> measurements, plans -> [here] -> `dslaunch plan --tune`, and its
// JSON -> tune. Measures on this machine; starts no job.
#pragma once

#include "job/setup/job_setup.h"
#include "worker/plan/plan_options.h"

namespace dslaunch::worker {

// Prints the configs as a table or one JSON object. Measures segments with the config's micro batch
// and, if time and memory allow, with one other size. No other ranks run during the measurement,
// because only the order of the forecasts matters. Throws Error{kConfig} if the section
// `autotuning` contradicts the config.
void print_tuning(const job::JobSetup& setup, const PlanArguments& arguments);

}  // namespace dslaunch::worker
