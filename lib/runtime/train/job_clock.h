// How long a job may still run. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace dslaunch::runtime {

class JobClock {
  public:
    // Without a limit.
    JobClock() = default;
    // LIMIT_S: seconds that the job has from START on; 0: until the time at which Slurm ends it,
    // where SLURM_JOB_END_TIME says so, else without a limit.
    JobClock(int64_t limit_s, std::chrono::system_clock::time_point start);

    // Whether less than NEEDED is left, and some more for what comes after the last save.
    [[nodiscard]] bool is_over(Duration needed) const;

  private:
    // When the last save must be done.
    std::optional<std::chrono::system_clock::time_point> end_;
};

}  // namespace dslaunch::runtime
