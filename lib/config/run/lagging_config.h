// The settings of zero_optimization.zenflow, which delays updates of unimportant parts of
// parameters. They are a part of the run config.
#pragma once

#include <cstdint>

namespace dslaunch::config {

// The settings of lagging updates. A unit is a slice of a parameter that is updated as a whole.
// Important units never lag.
struct LaggingConfig {
    bool on = false;
    double topk_ratio = 0.1;       // share of each block's units that is important
    int64_t update_interval = 4;   // steps between updates of the other units
    int64_t select_interval = 64;  // steps between selections of the important units, a multiple of
                                   // update_interval
    bool overlap = false;          // updates of the other units run during the next step
    int64_t warm_up_steps = 0;     // first steps, which update everything; step 1 always does

    bool operator==(const LaggingConfig&) const = default;
};

}  // namespace dslaunch::config
