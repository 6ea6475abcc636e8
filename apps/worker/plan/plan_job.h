// Prints the plan of one job: whether it fits on hosts like this machine, its segments and
// instructions, the bytes that it moves, and the forecast of a step. Measures something on this
// machine only if an option requires it.
#pragma once

#include "job/setup/job_setup.h"
#include "worker/plan/plan_options.h"

namespace dslaunch::worker {

// Prints the plan of SETUP's job as tables, or as one JSON object with the instructions of every
// rank. Throws Error{kUsage} if a forecast for a GPU is asked for without its rates.
void print_plan(const job::JobSetup& setup, const PlanArguments& arguments);

}  // namespace dslaunch::worker
