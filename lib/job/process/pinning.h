// The processors that a rank's process runs on.
#pragma once

#include <string>

#include "launch/plan/worker_environment.h"

namespace dslaunch::job {

// Ranks that share this machine's processors out among them stay on their own; where other work may
// run beside, the system decides. Returns what was done, in words.
std::string pin_to_processors(const launch::WorkerEnvironment& environment, int threads);

}  // namespace dslaunch::job
