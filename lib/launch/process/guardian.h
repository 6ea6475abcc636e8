// A process above the agent that outlives it by as long as it takes to end what the agent left.
// Killing the agent ends its workers (parent-death signal) but not their descendants; those are
// adopted and killed here.
#pragma once

#include <functional>

namespace dslaunch::launch {

// Forks: BODY runs in the child, with SIGCHLD, SIGTERM, SIGINT, SIGHUP and SIGUSR1 arriving at the
// descriptor it is given; this process waits for it, passes those signals on, and kills every
// descendant once the child is gone. The result is the child's exit code, 128+n for a signal. The
// child is told by SIGTERM when this process is killed.
[[nodiscard]] int run_guarded(const std::function<int(int signal_fd)>& body);

// Kills every descendant of this process again and again until none is left or LIMIT ms have
// passed; true when none is. REQUIRES: this process is a subreaper.
bool kill_descendants(int limit_ms);

}  // namespace dslaunch::launch
