// What `dslaunch io-bench` has stored of the disks that a config offloads to.
#pragma once

#include "config/run/offload_config.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::job {

// All folders together; nothing known where one of them is not here or was not measured.
[[nodiscard]] plan::DiskRates stored_rates(const config::OffloadConfig& config);

}  // namespace dslaunch::job
