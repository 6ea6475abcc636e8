// The times of a run's steps: of each step, of the longest, and of all steps. Data path: clock ->
// [here] -> trainer: metrics, and whether there is time for another step. One thread.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace dslaunch::runtime {

// Measures steps; see the top of this file.
class StepTimer {
  public:
    // CLOCK must outlive this object.
    explicit StepTimer(const Clock& clock) : clock_(clock) {}

    // Notes that the first step begins.
    void begin() { begin_ = last_end_ = clock_.now(); }
    // Notes that a step has ended, and returns the time since begin(), since the end of the step
    // before it or since skip(), whichever was called last.
    [[nodiscard]] Duration end_step() {
        const TimePoint now = clock_.now();
        const Duration took = now - last_end_;
        longest_ = std::max(longest_, took);
        last_end_ = now;
        return took;
    }
    // Notes that the work since the last step has ended. Its time is not part of the next step.
    void skip() { last_end_ = clock_.now(); }

    // Returns the time of the longest step; 0 before the first.
    [[nodiscard]] Duration longest() const { return longest_; }
    // Returns the time of all steps, and of the work that was skipped.
    [[nodiscard]] Duration total() const { return last_end_ - begin_; }

  private:
    const Clock& clock_;
    TimePoint begin_{};
    TimePoint last_end_{};
    Duration longest_{0};
};

}  // namespace dslaunch::runtime
