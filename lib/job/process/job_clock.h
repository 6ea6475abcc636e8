// How long a job may still run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/clock.h"

namespace dslaunch::job {

// LIMIT_S: seconds that the job has from START on; 0: until the time at which Slurm ends it, where
// SLURM_JOB_END_TIME says so. The result says whether less than NEEDED is left, and some more for
// what comes after the last save; empty: there is no limit. Any thread.
[[nodiscard]] std::function<bool(Duration needed)> job_clock(
    int64_t limit_s, std::chrono::system_clock::time_point start);

}  // namespace dslaunch::job
