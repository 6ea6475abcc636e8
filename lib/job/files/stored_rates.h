// The rates that `dslaunch io-bench` has stored for the disks to which a config offloads.
#pragma once

#include "config/run/offload_config.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::job {

// Returns the rates of all offload folders together; 0 if a folder is not on this host or was not
// measured.
[[nodiscard]] plan::DiskRates stored_rates(const config::OffloadConfig& config);

}  // namespace dslaunch::job
