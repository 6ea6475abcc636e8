// Runs a job from its JobSpec to its exit code: the entry point to the part of the launcher that
// starts processes.
#pragma once

#include "base/fd.h"
#include "launch/output/job_output.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

// Blocks SIGINT, SIGTERM, SIGUSR1 and SIGHUP for the rest of the process. A signal that arrives
// before the job begins waits until the job handles it; a signal after the job has no effect.
// Signals that were ignored at the start (nohup) stay ignored. REQUIRES: the process has no other
// thread yet.
void hold_end_signals();

// Undoes hold_end_signals() for a process that runs no job: the signals end this process again.
void release_end_signals();
// Blocks the signals of hold_end_signals() and returns a descriptor to read them from. Throws
// Error{kSetup}.
[[nodiscard]] UniqueFd open_end_signals();

// Starts agents on every node, checks all of them, starts the workers, forwards their messages and
// output, and ends everything if a worker fails or the user asks for the end. Returns the exit code
// of the process (docs/help/exit-codes.md); a failure has then already been printed on stderr.
// Throws Error for causes outside the ranks: kHosts, which names every bad host and its cause,
// kSetup or kDisk. Handles the signals that hold_end_signals() has blocked. Calls HEALTH with the
// records of a health check's ranks and METRICS with the lines of metrics, both in this thread.
// REQUIRES: called from the main thread.
[[nodiscard]] int run_job(const JobSpec& spec, HealthSink health = {}, MetricsTap metrics = {});

}  // namespace dslaunch::launch
