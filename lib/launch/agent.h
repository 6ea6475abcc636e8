// The agent: one per job and node, started by a transport as `dslaunch agent --stdio`. It starts
// the node's workers, forwards what they say, and ends all of them when it is told to or when its
// input closes: a launcher that is gone, for whatever reason, takes its job along. One thread; it
// forks only from there.
#pragma once

namespace dslaunch {

// Serves one launcher over the two descriptors and returns the exit code of the process. A guardian
// process stays above the agent and ends what is left should the agent itself be killed. REQUIRES:
// called before any thread starts.
[[nodiscard]] int run_agent(int in_fd, int out_fd);

}  // namespace dslaunch
