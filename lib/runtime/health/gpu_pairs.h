// Every pair of GPUs of `dslaunch health`, in rounds in which each GPU has one partner: both send
// to each other at the same time. Data path: paired collectives -> [here] -> health record. One
// thread, which blocks.
#pragma once

#include <cstdint>

#include "runtime/health/health_sweep.h"

namespace dslaunch::runtime {

// The lower rank of a pair reports its rate, each rank its wrong elements as a fault. SEAMS'
// collectives are PAIRS. Rank 0 decides for all when there is no time for more rounds, and says so.
// Throws the collectives' errors, naming the ranks.
void sweep_gpu_pairs(const SweepOptions& options, PairedCollectives& pairs, const SweepSeams& seams,
                     int64_t bytes = int64_t{64} << 20);

}  // namespace dslaunch::runtime
