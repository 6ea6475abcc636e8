// A job from its JobSpec to its exit code: the entry of the process half of the launcher.
#pragma once

#include "launch/job_spec.h"

namespace dslaunch {

// Starts agents on every node, checks all of them, starts the workers, forwards what they say, and
// ends everything when one fails or the user asks. The result is the exit code of the process
// (DESIGN "Exit codes"); what went wrong is on stderr by then. Throws Error for what concerns no
// rank: kHosts with every bad host and its cause, kSetup, kDisk. SIGINT, SIGTERM, SIGUSR1 and
// SIGHUP are taken over while it runs. REQUIRES: called from the main thread.
[[nodiscard]] int run_job(const JobSpec& spec);

}  // namespace dslaunch
