// `dslaunch health [options]`: starts `dsworker health` on every slot as a job is started, collects
// what the ranks measure, and prints who is to blame. docs/health.md describes it.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// Prints text or JSON to stdout. The result is the exit code: 0 healthy, kSetup for what was found,
// else the job's own. Throws Error as run_job does. REQUIRES: called from the main thread, no other
// thread yet.
[[nodiscard]] int run_health(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
