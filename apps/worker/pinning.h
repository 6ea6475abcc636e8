// Which processors a rank's process runs on.
#pragma once

#include <string>

#include "launch/worker_environment.h"

namespace dslaunch {

// Ranks that share this machine's processors out among them stay on their own; where other work may
// run beside, the system decides. Returns what was done, in words.
std::string pin_to_processors(const WorkerEnvironment& environment, int threads);

}  // namespace dslaunch
