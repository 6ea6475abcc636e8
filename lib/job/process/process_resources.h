// The processors that a rank's process runs on, the number of its threads, and the allocator's
// treatment of freed memory: it is returned to the system while a job is set up, and kept while the
// job steps. All calls affect the whole process; call them while there are few threads.
#pragma once

#include <string>

#include "launch/plan/worker_environment.h"

namespace dslaunch::job {

// Pins each rank to its own processors if all ranks of the host together have as many threads as
// this machine has processors. Otherwise the system decides where ranks run, because other work may
// use the machine too. Returns a text about what was done.
std::string pin_to_processors(const launch::WorkerEnvironment& environment, int threads);

// Sets the number of LibTorch's threads to WANTED. If WANTED is 0, each of RANKS ranks that share
// this machine gets the same number of its processors; but if OMP_NUM_THREADS is set, LibTorch
// already obeys it, and nothing is changed.
void set_rank_threads(int ranks, int wanted = 0);

// Makes the allocator return freed memory to the system while a job is loaded: large blocks become
// separate mappings.
void return_freed_memory();

// Makes the allocator keep freed memory. Each step allocates and frees activations; kept memory
// causes no new page faults.
void keep_freed_memory();

}  // namespace dslaunch::job
