// Which step updates what where updates may lag (ZenFlow): a function of the number of the update
// alone, so a resumed run goes on where it was. Data path: run config -> [here] -> step plans. No
// LibTorch. Pure.
#pragma once

#include <cstdint>

#include "config/run/lagging_config.h"
#include "plan/step/lagging.h"

namespace dslaunch::runtime {

class LagSchedule {
  public:
    explicit LagSchedule(const config::LaggingConfig& config) : config_(config) {}

    // UPDATE counts from 1. The first ones, one at least, update everything. Important units are
    // chosen by the last of these and by the last step of every select_interval behind it. The rest
    // is updated in the last step of every update_interval, or, late, in the one behind that.
    [[nodiscard]] plan::LagPlan of(int64_t update) const;

  private:
    config::LaggingConfig config_;
};

}  // namespace dslaunch::runtime
