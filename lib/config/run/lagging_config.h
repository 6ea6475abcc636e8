// Updates that may lag (zero_optimization.zenflow): a part of the run config. No threads: a value
// type.
#pragma once

#include <cstdint>

namespace dslaunch::config {

struct LaggingConfig {
    bool on = false;
    double topk_ratio = 0.1;       // part of the units of each block that are important
    int64_t update_interval = 4;   // steps between updates of the rest
    int64_t select_interval = 64;  // steps between choices, a multiple of update_interval
    bool overlap = false;          // updates of the rest run beside the next step
    int64_t warm_up_steps = 0;     // that update everything; the first step always does

    bool operator==(const LaggingConfig&) const = default;
};

}  // namespace dslaunch::config
