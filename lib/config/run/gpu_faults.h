// Finds the parts of a config that a rank on a GPU does not support yet. Used by `config check`,
// `plan` and runs. Pure.
#pragma once

#include <string>
#include <vector>

#include "config/run/run_config.h"

namespace dslaunch::config {

// One setting that a GPU refuses.
struct GpuFault {
    std::string path;  // the key of the setting
    std::string message;
};

// Returns the faults of CONFIG on a GPU; empty if it can run there.
[[nodiscard]] std::vector<GpuFault> gpu_faults(const RunConfig& config);

}  // namespace dslaunch::config
