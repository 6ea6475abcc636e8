// Runs a job from its JobSpec to its exit code: the entry of the process half of the launcher.
#pragma once

#include "base/fd.h"
#include "launch/plan/job_spec.h"
#include "launch/supervise/job_output.h"

namespace dslaunch::launch {

// Makes SIGINT, SIGTERM, SIGUSR1 and SIGHUP wait until a job takes them, for the rest of the
// process. A signal before the job has begun ends it as a later one does; a signal after the job
// changes nothing. Signals that were ignored at the start (nohup) stay ignored. REQUIRES: no other
// thread yet.
void hold_end_signals();

// Makes those signals end this process again, if no job is run after all.
void release_end_signals();
// Holds those signals and returns a descriptor to read them from. Throws Error{kSetup}.
[[nodiscard]] UniqueFd open_end_signals();

// Starts agents on every node, checks all of them, starts the workers, forwards what they say, and
// ends everything when one fails or the user asks. Returns the exit code of the process
// (docs/help/exit-codes.md); the failure is on stderr by then. Throws Error for causes outside of
// the ranks: kHosts with every bad host and its cause, kSetup, kDisk. Takes the signals of
// hold_end_signals() from now on. HEALTH gets the records of a health check's ranks, in this
// thread. REQUIRES: called from the main thread.
[[nodiscard]] int run_job(const JobSpec& spec, HealthSink health = {});

}  // namespace dslaunch::launch
