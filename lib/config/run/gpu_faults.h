// gpu_faults() lists what a rank on a GPU cannot do yet, for `config check`, `plan` and a run
// alike. Pure.
#pragma once

#include <string>
#include <vector>

#include "config/run/run_config.h"

namespace dslaunch::config {

struct GpuFault {
    std::string path;  // the key that asks for it
    std::string message;
};

// Empty: a GPU can run CONFIG.
[[nodiscard]] std::vector<GpuFault> gpu_faults(const RunConfig& config);

}  // namespace dslaunch::config
