// The time that a job may still run. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace dslaunch::runtime {

class JobClock {
  public:
    // Makes a clock without a limit.
    JobClock() = default;
    // LIMIT_S is the seconds that the job has from START on. With 0 the limit is the time at which
    // Slurm ends the job, if SLURM_JOB_END_TIME says so, else there is none.
    JobClock(int64_t limit_s, std::chrono::system_clock::time_point start);

    // True if less is left than NEEDED and the time for the work after the last save.
    [[nodiscard]] bool is_over(Duration needed) const;

  private:
    // The time when the last save must be done.
    std::optional<std::chrono::system_clock::time_point> end_;
};

}  // namespace dslaunch::runtime
