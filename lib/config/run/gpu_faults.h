// The parts of a config that a rank on a GPU cannot do yet, for `config check`, `plan` and a run
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

// Returns the faults of CONFIG on a GPU; empty: it can run.
[[nodiscard]] std::vector<GpuFault> gpu_faults(const RunConfig& config);

}  // namespace dslaunch::config
