// How fast a machine does what a step does beside its segments. Filled by worker/machine_rates.h,
// io-bench's stored rates and options; read by step_forecast.h and mesh_cost.h.
#pragma once

#include "plan/predict/shard_choice.h"

namespace dslaunch::plan {

// Of one rank, with its threads, while the other ranks of its host do the same. 0: not known, and
// takes no time.
struct MachineRates {
    double update_numel_per_s = 0;  // elements that the optimizer's step updates
    double sum_bytes_per_s = 0;     // read and written by sums and copies in memory
    // While computing and updates go on beside each other, how fast each is of what it is alone: a
    // half where they share processors without loss, 1 where each has its own.
    double computing_beside = 0.5;
    double updating_beside = 0.5;
    double host_bytes_per_s = 0;  // received from another rank of the host
    double link_bytes_per_s = 0;  // of a host from another one; mesh_cost.h has its ranks share it
    DiskRates disk = {};          // of a host, all its ranks together
};

}  // namespace dslaunch::plan
