// The options with which a job lowers the model's forward. They are the same for training, for
// held-out data and for all other uses of a job's graph.
#pragma once

#include <c10/core/Device.h>

#include "config/run/run_config.h"
#include "graph/lower/lower.h"

namespace dslaunch::job {

// Returns the options. TRAINING is false if the graph runs in eval mode; all other options are the
// same in both modes.
[[nodiscard]] graph::LowerOptions lower_options(const config::RunConfig& config, c10::Device device,
                                                bool training = true);

}  // namespace dslaunch::job
