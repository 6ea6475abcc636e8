// The options by which a job's config wants the model's forward lowered: one answer for training,
// held-out data and whoever looks at a job's graph.
#pragma once

#include <c10/core/Device.h>

#include "config/run/run_config.h"
#include "graph/lower/lower.h"

namespace dslaunch::job {

// TRAINING: false in eval mode, which is lowered as training is but for that.
[[nodiscard]] graph::LowerOptions lower_options(const config::RunConfig& config, c10::Device device,
                                                bool training = true);

}  // namespace dslaunch::job
