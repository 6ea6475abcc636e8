// The rates that `dslaunch io-bench` has stored for the disks that a config offloads to.
#pragma once

#include "config/run/offload_config.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::job {

// Returns the rates of all folders together; 0 if one of them is not here or was not measured.
[[nodiscard]] plan::DiskRates stored_rates(const config::OffloadConfig& config);

}  // namespace dslaunch::job
