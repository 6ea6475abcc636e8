// The moments of a schedule in which a stage can hold most activations, whatever the costs of its
// parts, so that many choices of parts are compared without running through the schedule for each.
// Data path: schedule -> [here] -> stage choice. Pure.
#pragma once

#include <vector>

#include "plan/pipeline/timed_schedule.h"

namespace dslaunch::plan {

class LiveFront {
  public:
    // REQUIRES: SCHEDULE comes from make_schedule.
    LiveFront(const PipelineSchedule& schedule, int stage);

    // Returns the most that the stage holds, LaneUse::live_bytes_max. COSTS are those of its
    // chunks.
    [[nodiscard]] Bytes peak(const std::vector<PartCost>& costs) const;

  private:
    // Three counts per chunk, one after the other: forwards whose activations are held,
    // backward_weights that are still to come, and backwards that run.
    using Moment = std::vector<int>;

    std::vector<Moment> moments_;  // no moment has less of everything than another
};

}  // namespace dslaunch::plan
