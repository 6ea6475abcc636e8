// How a rank's process uses its allocator and its processors.
#pragma once

#include <string>

#include "launch/worker_environment.h"

namespace dslaunch {

// What loading takes goes back to the system when it is freed: large blocks stay mappings of their
// own.
void return_freed_memory();

// Activations come and go each step: freed memory is kept, so that no page is faulted in twice.
void keep_freed_memory();

// Ranks that share this machine's processors out among them stay on their own; where other work may
// run beside, the system decides. Returns what was done, in words.
std::string pin_to_processors(const WorkerEnvironment& environment, int threads);

}  // namespace dslaunch
