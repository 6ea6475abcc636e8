// The agent: one per job and node, started by a transport as `dslaunch agent --stdio`. It starts
// the node's workers, forwards what they say, and ends all of them when it is told to or when its
// input closes: a launcher that is gone, for whatever reason, takes its job along. One thread; it
// forks only from there.
#pragma once

#include <optional>
#include <string>

#include "launch/agent/agent_worker.h"
#include "launch/machine/launcher_lease.h"
#include "launch/transport/join/join_channel.h"

namespace dslaunch::launch {

struct AgentSettings {
    // The address at which the launcher reached this machine, when the way here does not say;
    // empty: sshd's word counts.
    std::string arrival_address;
    // A signal from outside (a scheduler that ends the job, a pod that is removed) is passed to the
    // launcher, which lets the ranks save; only a second one ends the workers here.
    bool asks_before_ending = false;
    // CUDA_VISIBLE_DEVICES as a scheduler set it: the job's device numbers are places in this list.
    std::optional<std::string> visible_devices;
    // An eventfd, readable once the launcher has said that it wants this agent for another attempt;
    // -1: nobody asks.
    int come_again_fd = -1;
    // Rank 0 reads it, if this agent starts rank 0. Stays the caller's.
    WorkerStdin worker_stdin;
    LauncherLease lease = LauncherLease::same_machine();
};

// Serves one launcher over the two descriptors, whose bytes pass CHANNEL, and returns the exit code
// of the process. A guardian process stays above the agent and ends what is left should the agent
// itself be killed. REQUIRES: called before any thread starts.
[[nodiscard]] int run_agent(int in_fd, int out_fd, JoinChannel channel,
                            const AgentSettings& settings = {});

}  // namespace dslaunch::launch
