// `dslaunch health [options]`: starts `dsworker health` on every slot as a job is started, collects
// the measurements of the ranks, and prints which ranks, links or hosts are at fault. See
// docs/guide/health.md.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// Prints text or JSON to stdout. The result is the exit code: 0 if healthy, kSetup for findings,
// else the job's own. Throws Error as run_job does. REQUIRES: called from the main thread, no other
// thread yet.
[[nodiscard]] int run_health(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
