// What `dslaunch io-bench` has stored of the disks that a config offloads to.
#pragma once

#include "config/offload_config.h"
#include "plan/shard_choice.h"

namespace dslaunch {

// All folders together; nothing known where one of them is not here or was not measured.
[[nodiscard]] DiskRates stored_rates(const OffloadConfig& config);

}  // namespace dslaunch
