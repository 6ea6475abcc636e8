// The processors that a rank's process runs on, and the allocator's treatment of freed memory:
// given back while a job is set up, kept while it steps. All calls act on the whole process; call
// them while there are few threads.
#pragma once

#include <string>

#include "launch/plan/worker_environment.h"

namespace dslaunch::job {

// Keeps ranks that share this machine's processors on their own ones; lets the system decide if
// other work may run beside. Returns in words what was done.
std::string pin_to_processors(const launch::WorkerEnvironment& environment, int threads);

// Returns memory that loading takes to the system when it is freed: large blocks stay mappings of
// their own.
void return_freed_memory();

// Keeps freed memory: activations come and go each step, and no page should be faulted in twice.
void keep_freed_memory();

}  // namespace dslaunch::job
